"use strict";

function tableRow(row, columns) {
  const details = row.details.length > 0 ? el("tr", { class: "details", hidden: true }, el("td", { colspan: columns + 1 }, row.details.map((line) => el("p", {}, line)))) : null;
  const button = details ? el("button", { type: "button", "aria-expanded": "false", onclick: () => {
    details.hidden = !details.hidden;
    button.setAttribute("aria-expanded", String(!details.hidden));
  } }, row.word || "details") : null;
  const line = el("tr", { class: row.status }, el("td", {}, button || row.word), row.cells.map((cell) => el("td", {}, cell)));
  const words = [row.word, ...row.cells, ...row.details].join("\n").toLowerCase();
  return { row, line, details, words };
}

function sortKey(text) {
  return text !== "" && !Number.isNaN(Number(text)) ? [0, Number(text), ""] : [1, 0, text];
}

function compareKeys(a, b) {
  return a[0] - b[0] || a[1] - b[1] || (a[2] < b[2] ? -1 : a[2] > b[2] ? 1 : 0);
}

function drawTable(part) {
  let rows = part.rows.map((row) => tableRow(row, part.columns.length));
  const body = el("tbody", {});
  const count = el("span", { role: "status", "aria-live": "polite" });
  const words = [...new Set(part.rows.map((row) => row.word))].filter(Boolean);
  const state = { text: "", word: "", column: -1, down: false };
  const draw = () => {
    const shown = rows.filter((r) => (state.word === "" || r.row.word === state.word) && r.words.includes(state.text));
    body.replaceChildren(...shown.flatMap((r) => (r.details ? [r.line, r.details] : [r.line])));
    count.textContent = shown.length + " of " + plural(rows.length, "row");
  };
  const sortBy = (column) => () => {
    state.down = state.column === column && !state.down;
    state.column = column;
    const key = (r) => sortKey(column < 0 ? r.row.word : r.row.cells[column] || "");
    rows = [...rows].sort((a, b) => (state.down ? -1 : 1) * compareKeys(key(a), key(b)));
    head.querySelectorAll("th").forEach((th, i) => th.setAttribute("aria-sort", i - 1 !== column ? "none" : state.down ? "descending" : "ascending"));
    draw();
  };
  const head = el("tr", {}, el("th", { scope: "col", "aria-sort": "none" }, el("button", { type: "button", onclick: sortBy(-1) }, "status")),
    part.columns.map((name, i) => el("th", { scope: "col", "aria-sort": "none" }, el("button", { type: "button", onclick: sortBy(i) }, name))));
  const filter = el("input", { type: "search", placeholder: "words in a row", oninput: () => {
    state.text = filter.value.toLowerCase();
    draw();
  } });
  draw();
  return [
    el("h2", {}, part.title), (part.sentences || []).map((sentence) => el("p", {}, sentence)), part.command ? el("p", {}, "Repeat with: ", el("code", {}, part.command)) : null,
    rows.length > 0 ? el("div", { class: "controls" }, el("label", {}, "Filter ", filter), words.length > 1 ? chooser("Status", ["all", ...words], 0, (i) => {
      state.word = i === 0 ? "" : words[i - 1];
      draw();
    }) : null, count) : null,
    rows.length > 0 ? el("div", { class: "scroll" }, el("table", {}, el("caption", {}, "A row's button shows what there is to say of it; a column's sorts."), el("thead", {}, head), body)) : null,
  ].flat().filter(Boolean);
}

function drawMatrix(part) {
  const detail = detailLine("Point at a cell, or go there with Tab and the arrow keys.");
  const grid = [];
  const body = part.rows.map((row) => {
    const cells = row.cells.map((cell, c) => {
      const td = el("td", { class: cell ? cell[0] : null, role: "gridcell", tabindex: -1, "data-cell": true }, cell ? cell[1] : "");
      td.place = c;
      td.words = () => row.name + ", " + part.columns[c] + ": " + (cell ? cell[2] : "nothing here");
      return td;
    });
    grid.push(cells);
    return el("tr", {}, el("th", { scope: "row" }, row.name), cells);
  });
  const table = el("table", { class: "matrix", role: "grid", "aria-label": part.title },
    el("thead", {}, el("tr", {}, [part.corner, ...part.columns].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, body));
  roving(table, grid, (cell) => (detail.textContent = cell.words()));
  return [el("h2", {}, part.title), (part.sentences || []).map((sentence) => el("p", {}, sentence)), el("div", { class: "scroll" }, table), detail].flat();
}
