"use strict";

const cellsMax = 60000; // of one step; more take a browser too long
const columnsMax = 64; // beyond them ranks that are alike become one

// What a pair of weights is, beside how it is called.
function judgePair([observed, expected, observedText, expectedText, misplaced, open]) {
  if (misplaced) return { kind: "astray", text: "\u21c4" + observedText, words: "what is due of other elements is there" };
  if (open && observed === expected) return { kind: "untold", text: expectedText + "?", words: "due, and how much is there is not told" };
  if (observed === expected) return { kind: expected === 0 ? "none" : "right", text: expected === 0 ? "" : observedText, words: expected === 0 ? "none is due and none is there" : "as due" };
  if (typeof observed === "string" || typeof expected === "string") return { kind: "stray", text: "?" + observedText, words: "not a number" };
  if (expected === 0) return { kind: "stray", text: "\u25c6" + observedText, words: "there, though none is due" };
  const ratio = observed / expected;
  if (ratio < 1) return { kind: observed === 0 ? "less" : "less half", text: "\u25bc" + observedText, words: observed === 0 ? "missing" : "too little" };
  return { kind: ratio >= 2 ? "more far" : "more", text: "\u25b2" + observedText, words: "too much" };
}

function isWrong(pair) {
  return pair[0] !== pair[1] || pair[4];
}

// The numbers of the pairs of a row, one for each column.
function cellsOf(row) {
  const out = [];
  for (let i = 0; i < row.cells.length; i += 2) for (let n = 0; n < row.cells[i + 1]; ++n) out.push(row.cells[i]);
  return out;
}

// Columns that hold something, in the order of their contributions; those that are alike in every row become one, if asked.
function columnsOf(ledger, rows, merge) {
  const list = ledger.columns[rows[0].columns];
  const dark = (k) => rows.every((row) => ledger.pairs[row.all[k]][0] === 0 && !isWrong(ledger.pairs[row.all[k]]));
  const order = list.map((_, k) => k).filter((k) => !dark(k));
  order.sort((a, b) => list[a][0] - list[b][0] || list[a][1] - list[b][1] || list[a][2] - list[b][2]);
  const out = [];
  for (const k of order) {
    const [step, rank, microBatch] = list[k];
    const last = out[out.length - 1];
    const follows = last && last.step === step && last.rank === rank && last.to + 1 === microBatch;
    if (merge && follows && rows.every((row) => row.all[k] === row.all[last.index])) last.to = microBatch;
    else out.push({ step, rank, lastRank: rank, from: microBatch, to: microBatch, index: k });
  }
  return merge && out.length > columnsMax ? ranksTogether(out, rows) : out;
}

// Ranks that follow each other and have the same cells in every row.
function ranksTogether(columns, rows) {
  const ofRanks = [];
  for (const column of columns) {
    const last = ofRanks[ofRanks.length - 1];
    if (last && last[0].step === column.step && last[0].rank === column.rank) last.push(column);
    else ofRanks.push([column]);
  }
  const out = [];
  let before = null;
  for (const mine of ofRanks) {
    const says = mine.map((c) => c.from + "-" + c.to + " " + rows.map((row) => row.all[c.index]).join()).join(";");
    const follows = before && before.says === says && before.columns[0].step === mine[0].step && before.columns[0].lastRank + 1 === mine[0].rank;
    if (follows) for (const column of before.columns) column.lastRank = mine[0].rank;
    else {
      before = { says, columns: mine };
      out.push(...mine);
    }
  }
  return out;
}

function ranksText(column) {
  return column.lastRank > column.rank ? "ranks " + column.rank + "-" + column.lastRank : "rank " + column.rank;
}

function contributionText(column) {
  const batches = column.from === column.to ? "micro-batch " + column.from : "micro-batches " + column.from + "-" + column.to;
  return batches + " of " + ranksText(column) + ", step " + column.step;
}

function heatHead(columns, step) {
  const groups = [];
  for (const column of columns) {
    const last = groups[groups.length - 1];
    if (last && last.rank === column.rank && last.step === column.step) ++last.count;
    else groups.push({ rank: column.rank, lastRank: column.lastRank, step: column.step, count: 1 });
  }
  const name = (group) => (group.step === step ? "" : "step " + group.step + ", ") + "from " + ranksText(group);
  return el(
    "thead", {},
    el("tr", {}, el("th", { rowspan: 2, scope: "col" }, "rank, buffer, elements"), groups.map((group) => el("th", { colspan: group.count, scope: "colgroup" }, name(group)))),
    el("tr", {}, columns.map((c) => el("th", { scope: "col" }, c.from === c.to ? "m" + c.from : "m" + c.from + "-" + c.to))));
}

function heatTable(ledger, rows, columns, step, detail) {
  const looks = ledger.pairs.map(judgePair);
  const grid = [];
  const body = rows.map((row) => {
    const cells = columns.map((column, c) => {
      const pair = ledger.pairs[row.all[column.index]];
      const look = looks[row.all[column.index]];
      const cell = el("td", { class: look.kind, role: "gridcell", tabindex: -1, "data-cell": true }, look.text);
      cell.place = c;
      cell.words = () => "Applied by rank " + row.rank + " to " + row.elements + " (" + row.buffer + ", event " + row.event + "): " + contributionText(column) +
        (pair[4] ? " is " : " weighs ") + pair[2] + " where " + pair[3] + " is due: " + look.words + ".";
      return cell;
    });
    grid.push(cells);
    return el("tr", {}, el("th", { scope: "row", title: row.buffer + ": " + row.elements }, "rank " + row.rank + "  ", el("span", { class: "faint" }, row.buffer + "  "), row.elements), cells);
  });
  const table = el("table", { class: "heat", role: "grid", "aria-label": "Ledger of step " + step }, heatHead(columns, step), el("tbody", {}, body));
  roving(table, grid, (cell) => (detail.textContent = cell.words()));
  return table;
}

function heatLegend() {
  const samples = [["right", "1/8", "as due"], ["less", "\u25bc0", "missing"], ["less half", "\u25bc1/16", "too little"], ["more", "\u25b23/16", "too much"],
    ["more far", "\u25b21/4", "at least twice too much"], ["stray", "\u25c61/8", "there, though none is due"], ["astray", "\u21c4misplaced", "what is due of other elements is there"],
    ["untold", "1/8?", "due, and how much is there is not told"]];
  return el("ul", { class: "legend", "aria-label": "Legend" },
    samples.map(([kind, text, words]) => el("li", {},
      el("table", { class: "heat", role: "presentation", style: "display:inline-table" }, el("tbody", {}, el("tr", {}, el("td", { class: kind }, text)))), " " + words)));
}

function stepsOf(ledger) {
  const steps = new Map();
  for (const row of ledger.rows) {
    row.all = row.all || cellsOf(row);
    row.wrong = row.all.filter((pair) => isWrong(ledger.pairs[pair])).length;
    if (!steps.has(row.step)) steps.set(row.step, { step: row.step, rows: [], wrong: 0 });
    steps.get(row.step).rows.push(row);
    steps.get(row.step).wrong += row.wrong;
  }
  return [...steps.values()].sort((a, b) => a.step - b.step);
}

function drawLedger(ledger) {
  const steps = stepsOf(ledger);
  if (steps.length === 0) return section("Ledger", el("p", {}, "No step applied a gradient whose weights could be decoded."));
  const detail = detailLine("Point at a cell, or go there with Tab and the arrow keys.");
  const place = el("div", {});
  const state = { step: Math.max(0, steps.findIndex((s) => s.wrong > 0)), merge: true, wrongOnly: false };
  const draw = () => {
    const { step, rows } = steps[state.step];
    let left = rows.filter((row) => !state.wrongOnly || row.wrong > 0);
    const tables = [];
    // Rows of one step can have been decoded for other contributions: a table of each kind.
    const kinds = [...new Set(left.map((row) => row.columns))];
    for (const kind of kinds) {
      const alike = left.filter((row) => row.columns === kind);
      const columns = columnsOf(ledger, alike, state.merge);
      const fit = Math.max(1, Math.floor(cellsMax / Math.max(1, columns.length)));
      tables.push(el("div", { class: "scroll" }, heatTable(ledger, alike.slice(0, fit), columns, step, detail)));
      if (alike.length > fit) tables.push(el("p", {}, alike.length - fit + " more rows are not drawn; --json --ledger has them."));
    }
    if (left.length === 0) tables.push(el("p", {}, "No row of this step is wrong."));
    place.replaceChildren(...tables);
  };
  draw();
  const change = (name) => (value) => {
    state[name] = value;
    draw();
  };
  return section(
    "Ledger: the weight with which each contribution entered the gradient that was applied",
    el("div", { class: "controls" },
      chooser("Step", steps.map((s) => "step " + s.step + (s.wrong > 0 ? ": " + plural(s.wrong, "wrong weight") : ": balances")), state.step, change("step")),
      tick("join micro-batches that are alike", true, change("merge")), tick("wrong rows alone", false, change("wrongOnly"))),
    heatLegend(), place, detail);
}
