"use strict";

const eventsMax = 400; // columns that are drawn
const rowsMax = 128; // groups of ranks
const namesMax = 12; // buffers that a sentence lists

// What a rank holds after an event: nothing where it does not run.
function heldBy(balance, books, event, rank) {
  const record = books.at.get(event).get(rank);
  return record === undefined ? undefined : balance.held[record];
}

// Every event with the record of each rank. Ranks that hold the same after every event are one row.
function booksOf(balance) {
  const at = new Map();
  for (const [event, ranges, record] of balance.lines) {
    if (!at.has(event)) at.set(event, new Map());
    for (const [first, last] of ranges) for (let rank = first; rank <= last; ++rank) at.get(event).set(rank, record);
  }
  const events = [...at.keys()].sort((a, b) => a - b);
  const all = new Set();
  for (const byRank of at.values()) for (const rank of byRank.keys()) all.add(rank);
  const ranks = [...all].sort((a, b) => a - b);
  const bad = balance.held.map((held) => held.some((buffer) => buffer[2]));
  const wrong = events.filter((event) => [...at.get(event).values()].some((record) => bad[record]));
  const rows = new Map();
  for (const rank of ranks) {
    const like = events.map((event) => at.get(event).get(rank)).join();
    if (!rows.has(like)) rows.set(like, []);
    rows.get(like).push(rank);
  }
  return { ranks, events, at, rows: [...rows.values()], firstWrong: wrong.length > 0 ? wrong[0] : null };
}

function buffersText(balance, held) {
  if (!held || held.length === 0) return "no gradient is held";
  return firstOf(held.map(([buffer, norm, wrong]) => (wrong ? "OUT OF BALANCE: " : "") + balance.buffers[buffer][0] + " (" + balance.buffers[buffer][1] + (norm === "" ? "" : ", norm " + norm) + ")"));
}

function firstOf(names) {
  return names.slice(0, namesMax).join(", ") + (names.length > namesMax ? " and " + (names.length - namesMax) + " more" : "");
}

// As many as are drawn, those around the first wrong one.
function eventsShown(books) {
  if (books.events.length <= eventsMax) return books.events;
  const wanted = books.firstWrong === null ? 0 : books.events.indexOf(books.firstWrong) - eventsMax / 4;
  const start = Math.max(0, Math.min(wanted, books.events.length - eventsMax));
  return books.events.slice(start, start + eventsMax);
}

// As many rows as are drawn, those that are wrong first.
function rowsShown(balance, books) {
  const isWrong = (ranks) => books.events.some((event) => (heldBy(balance, books, event, ranks[0]) || []).some((buffer) => buffer[2]));
  if (books.rows.length <= rowsMax) return books.rows;
  const wrong = books.rows.filter(isWrong);
  const shown = new Set([...wrong, ...books.rows.filter((row) => !wrong.includes(row))].slice(0, rowsMax));
  return books.rows.filter((row) => shown.has(row));
}

function booksTable(balance, books, shownRows, events, detail) {
  const grid = [];
  const rows = shownRows.map((ranks) => {
    const named = numbered("rank", ranks);
    const cells = events.map((event, c) => {
      const held = heldBy(balance, books, event, ranks[0]);
      const wrong = held && held.some((buffer) => buffer[2]);
      const kind = wrong ? "wrong" : held && held.length > 0 ? "held" : "";
      const cell = el("td", { class: kind + (event === books.firstWrong ? " first" : ""), role: "gridcell", tabindex: -1, "data-cell": true }, wrong ? "\u2717" : kind === "held" ? "\u00b7" : "");
      cell.place = c;
      cell.words = () => "Event " + event + ", " + balance.events[event] + ", " + named + ": " + (held ? buffersText(balance, held) : "not run here") + ".";
      return cell;
    });
    grid.push(cells);
    return el("tr", {}, el("th", { scope: "row" }, named), cells);
  });
  const head = el("tr", {}, el("th", { scope: "col" }, "event"), events.map((e) => el("th", { scope: "col", class: e === books.firstWrong ? "first" : null, title: balance.events[e] }, String(e))));
  const table = el("table", { class: "books", role: "grid", "aria-label": "Buffers of gradients after every event" }, el("thead", {}, head), el("tbody", {}, rows));
  roving(table, grid, (cell) => (detail.textContent = cell.words()));
  return table;
}

function drawBalance(balance) {
  if (balance.lines.length === 0) return null;
  const books = booksOf(balance);
  const events = eventsShown(books);
  const detail = detailLine("\u00b7 a gradient is held and balances; \u2717 its books do not balance; empty: no gradient is held.");
  let sentence = "After every event, what each rank holds is what it should hold.";
  if (books.firstWrong !== null) {
    const ranks = books.ranks.filter((rank) => (heldBy(balance, books, books.firstWrong, rank) || []).some((buffer) => buffer[2]));
    const names = ranks.flatMap((rank) => heldBy(balance, books, books.firstWrong, rank).filter((b) => b[2]).map((b) => balance.buffers[b[0]][0]));
    sentence = "The books stop balancing at event " + books.firstWrong + ", " + balance.events[books.firstWrong] + ", on " + numbered("rank", ranks) + ": " + firstOf([...new Set(names)]) + ".";
  }
  const rows = rowsShown(balance, books);
  const box = el("div", { class: "scroll" }, booksTable(balance, books, rows, events, detail));
  // The first wrong column is what a reader looks for.
  requestAnimationFrame(() => {
    const first = box.querySelector("th.first");
    if (first) box.scrollLeft = Math.max(0, first.offsetLeft - box.clientWidth / 2);
  });
  const rest = books.events.length - events.length;
  const rowsLeft = books.rows.length - rows.length;
  return section(
    "Where the books stop balancing", el("p", {}, sentence), box, detail,
    rest > 0 ? el("p", {}, rest + " more events are not drawn.") : null,
    rowsLeft > 0 ? el("p", {}, rowsLeft + " more groups of ranks are not drawn.") : null);
}
