"use strict";

const eventsMax = 400; // columns that are drawn

// Every event and rank with the worst that its buffers are: empty, held, or wrong.
function booksOf(balance) {
  const ranks = [...new Set(balance.lines.map((line) => line[1]))].sort((a, b) => a - b);
  const events = [...new Set(balance.lines.map((line) => line[0]))].sort((a, b) => a - b);
  const at = new Map(balance.lines.map((line) => [line[0] + " " + line[1], line[2]]));
  const wrong = events.filter((event) => ranks.some((rank) => (at.get(event + " " + rank) || []).some((buffer) => buffer[2])));
  return { ranks, events, at, firstWrong: wrong.length > 0 ? wrong[0] : null };
}

function buffersText(balance, held) {
  if (!held || held.length === 0) return "no gradient is held";
  return held.map(([buffer, norm, wrong]) => (wrong ? "OUT OF BALANCE: " : "") + balance.buffers[buffer][0] + " (" + balance.buffers[buffer][1] + ", norm " + norm + ")").join("; ");
}

// As many as are drawn, those around the first wrong one.
function eventsShown(books) {
  if (books.events.length <= eventsMax) return books.events;
  const wanted = books.firstWrong === null ? 0 : books.events.indexOf(books.firstWrong) - eventsMax / 4;
  const start = Math.max(0, Math.min(wanted, books.events.length - eventsMax));
  return books.events.slice(start, start + eventsMax);
}

function booksTable(balance, books, events, detail) {
  const grid = [];
  const rows = books.ranks.map((rank) => {
    const cells = events.map((event, c) => {
      const held = books.at.get(event + " " + rank);
      const wrong = held && held.some((buffer) => buffer[2]);
      const kind = wrong ? "wrong" : held && held.length > 0 ? "held" : "";
      const cell = el("td", { class: kind + (event === books.firstWrong ? " first" : ""), role: "gridcell", tabindex: -1, "data-cell": true }, wrong ? "\u2717" : kind === "held" ? "\u00b7" : "");
      cell.place = c;
      cell.words = () => "Event " + event + ", " + balance.events[event] + ", rank " + rank + ": " + (held ? buffersText(balance, held) : "not run here") + ".";
      return cell;
    });
    grid.push(cells);
    return el("tr", {}, el("th", { scope: "row" }, "rank " + rank), cells);
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
    const ranks = books.ranks.filter((rank) => (books.at.get(books.firstWrong + " " + rank) || []).some((buffer) => buffer[2]));
    const names = ranks.flatMap((rank) => books.at.get(books.firstWrong + " " + rank).filter((b) => b[2]).map((b) => balance.buffers[b[0]][0]));
    sentence = "The books stop balancing at event " + books.firstWrong + ", " + balance.events[books.firstWrong] + ", on " + numbered("rank", ranks) + ": " + [...new Set(names)].join(", ") + ".";
  }
  const box = el("div", { class: "scroll" }, booksTable(balance, books, events, detail));
  // The first wrong column is what a reader looks for.
  requestAnimationFrame(() => {
    const first = box.querySelector("th.first");
    if (first) box.scrollLeft = Math.max(0, first.offsetLeft - box.clientWidth / 2);
  });
  const rest = books.events.length - events.length;
  return section(
    "Where the books stop balancing", el("p", {}, sentence), box, detail,
    rest > 0 ? el("p", {}, rest + " more events are not drawn; --json has them all.") : null);
}
