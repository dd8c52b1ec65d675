"use strict";

const laneHeight = 20;
const barsMax = 8000; // of one step

// Lanes from top to bottom: the streams of rank 0, of rank 1, ...
function laneList(lanes) {
  const order = ["host", "compute", "communication", "copy", "side", "all-gather", "all-reduce"];
  const out = [];
  lanes.ranks.forEach((streams, rank) => {
    for (const stream of order) if (streams[stream]) out.push({ rank, stream, bars: streams[stream] });
  });
  return out;
}

// Of what happens before the first event, the first step has it.
function stepOfBar(lanes, bar) {
  return bar[2] < 0 ? lanes.events.length > 0 ? lanes.events[0][1] : 0 : lanes.events[bar[2]][1];
}

function barWords(lanes, lane, bar) {
  const [begin, length, event, word, meeting, races] = bar;
  const place = "Rank " + lane.rank + ", stream " + lane.stream + ", " + (event < 0 ? "before the first event" : "event " + event + ", " + lanes.events[event][0]);
  let what = meeting < 0 ? lanes.words[word] : lanes.words[lanes.meetings[meeting][0]];
  if (meeting >= 0 && length > 1) what += ", which waits " + plural(length - 1, "unit") + " for other ranks";
  if (meeting >= 0 && !lanes.meetings[meeting][1]) what += ", which NOT all ranks of the group reach";
  const racing = races ? ". RACE: " + races.map((race) => lanes.races[race]).join("; ") : "";
  return place + ": " + what + " (units " + begin + " to " + (begin + length) + ")" + racing + ".";
}

// What fits into a bar: what its event is, its number, or nothing.
function barLabel(lanes, [, , event, , , races], width) {
  if (races) return rangesText(races.map((race) => race + 1)).replace(/^/, "R");
  const fits = [event < 0 ? "start" : lanes.events[event][0], event < 0 ? "" : "e" + event].filter((text) => text.length * 6 + 6 < width);
  return fits[0] || "";
}

function drawBar(lanes, lane, bar, odd, x, y, width) {
  const [, , , , meeting, races] = bar;
  const classes = ["bar", lane.stream, odd ? "odd" : "", meeting >= 0 ? "meeting" : "", races ? "racing" : "", meeting >= 0 && !lanes.meetings[meeting][1] ? "open" : ""];
  const g = svg("g", { class: classes.filter(Boolean).join(" "), role: "button", tabindex: -1, "data-cell": true },
    svg("rect", { x, y: y + 2, width: Math.max(1, width - 1), height: laneHeight - 5, rx: 2 }));
  const label = barLabel(lanes, bar, width);
  if (label) g.append(svg("text", { x: x + 3, y: y + laneHeight - 7 }, label));
  g.place = x;
  g.words = () => barWords(lanes, lane, bar);
  g.setAttribute("aria-label", g.words());
  return g;
}

// Vertical lines between the ranks of a collective, at its end.
function drawJoins(meetings) {
  const out = [];
  for (const members of meetings.values()) {
    if (members.length < 2) continue;
    const x = members[0].end - 4;
    const ys = members.map((member) => member.y + laneHeight / 2);
    out.push(svg("line", { class: "join", x1: x, x2: x, y1: Math.min(...ys), y2: Math.max(...ys) }), ys.map((y) => svg("circle", { class: "join-end", cx: x, cy: y, r: 3 })));
  }
  return out.flat();
}

function drawPairs(races) {
  return [...races].filter(([, ends]) => ends.length === 2)
    .map(([race, [one, other]]) => [svg("line", { class: "pair", x1: one.x, x2: other.x, y1: one.y, y2: other.y }),
      svg("text", { class: "pair-name", x: (one.x + other.x) / 2 + 4, y: (one.y + other.y) / 2 + 4 }, "R" + (race + 1))])
    .flat();
}

function drawNames(list) {
  const width = 130;
  const height = list.length * laneHeight;
  const names = svg("svg", { class: "names", width, height, "aria-hidden": true });
  list.forEach((lane, i) => {
    const first = i === 0 || list[i - 1].rank !== lane.rank;
    if (first) names.append(svg("line", { class: "rule", x1: 0, x2: width, y1: i * laneHeight, y2: i * laneHeight }),
      svg("text", { class: "name-rank", x: 4, y: i * laneHeight + 14 }, "r" + lane.rank));
    names.append(svg("text", { x: 36, y: i * laneHeight + 14 }, lane.stream));
  });
  return names;
}

function drawStep(lanes, list, step, unit, detail) {
  const shown = list.map((lane) => lane.bars.filter((bar) => stepOfBar(lanes, bar) === step));
  const all = shown.flat();
  if (all.length === 0) return el("p", {}, "No operation takes time in this step.");
  const begin = Math.min(...all.map((bar) => bar[0]));
  const cut = all.length > barsMax ? all.map((bar) => bar[0]).sort((a, b) => a - b)[barsMax] : Infinity;
  const end = Math.min(cut, Math.max(...all.map((bar) => bar[0] + bar[1])));
  const [width, height] = [(end - begin) * unit + 20, list.length * laneHeight];
  const chart = svg("svg", { width, height, viewBox: "0 0 " + width + " " + height, preserveAspectRatio: "none", role: "group", "aria-label": "Operations of step " + step });
  const meetings = new Map();
  const races = new Map();
  const grid = list.map((lane, i) => {
    const y = i * laneHeight;
    if (i === 0 || list[i - 1].rank !== lane.rank) chart.append(svg("line", { class: "rule", x1: 0, x2: width, y1: y, y2: y }));
    let odd = false;
    return shown[i].filter((bar) => bar[0] < cut).map((bar, b, bars) => {
      if (b > 0 && bars[b - 1][2] !== bar[2]) odd = !odd;
      const x = (bar[0] - begin) * unit;
      const g = drawBar(lanes, lane, bar, odd, x, y, bar[1] * unit);
      chart.append(g);
      if (bar[4] >= 0) meetings.set(bar[4], [...(meetings.get(bar[4]) || []), { y, end: x + bar[1] * unit }]);
      for (const race of bar[5] || []) races.set(race, [...(races.get(race) || []), { x: x + unit / 2, y: y + laneHeight / 2 }]);
      return g;
    });
  });
  chart.append(...drawJoins(meetings), ...drawPairs(races));
  roving(chart, grid, (bar) => (detail.textContent = bar.words()));
  const box = el("div", { class: "lanes" }, drawNames(list), el("div", { tabindex: 0, role: "region", "aria-label": "Time line, scrolls sideways" }, chart));
  return cut === Infinity ? box : el("div", {}, box, el("p", {}, "Only the first " + barsMax + " bars of " + all.length + " are drawn; --chrome-trace writes all."));
}

function drawLanes(lanes) {
  const title = "Time line of ranks and streams";
  if (lanes.left_out) return section(title, el("p", {}, "Not drawn: " + lanes.left_out + "."));
  const list = laneList(lanes);
  if (list.length === 0) return null;
  const steps = [...new Set(list.flatMap((lane) => lane.bars.map((bar) => stepOfBar(lanes, bar))))].sort((a, b) => a - b);
  const racing = new Set(list.flatMap((lane) => lane.bars.filter((bar) => bar[5]).map((bar) => stepOfBar(lanes, bar))));
  const detail = detailLine("Point at a bar, or go there with Tab and the arrow keys.");
  const place = el("div", {});
  const state = { step: Math.max(0, steps.findIndex((step) => racing.has(step))), unit: Math.min(40, Math.max(8, (1100 * steps.length) / lanes.end)) };
  const draw = () => place.replaceChildren(drawStep(lanes, list, steps[state.step], state.unit, detail));
  const zoom = (factor) => () => {
    state.unit = Math.min(96, Math.max(1.5, state.unit * factor));
    draw();
  };
  draw();
  const open = lanes.meetings.filter((meeting) => !meeting[1]).length;
  return section(
    title, el("p", { class: "faint" }, "There is no clock: each operation takes one unit and begins as soon as its program lets it. Lines join the ranks of a collective" +
      (lanes.races.length > 0 ? "; dashed lines R1, R2, ... join two operations that nothing orders (a race)." : ".")),
    lanes.races.length > 0 ? el("ul", {}, lanes.races.slice(0, 8).map((race, i) => el("li", {}, el("strong", {}, "R" + (i + 1) + " "), race + ".")),
      lanes.races.length > 8 ? el("li", {}, "and " + (lanes.races.length - 8) + " more") : null) : null,
    open > 0 ? el("p", {}, plural(open, "collective") + " never complete: some rank of the group does not get there.") : null,
    el("div", { class: "controls" },
      chooser("Step", steps.map((step) => "step " + step + (racing.has(step) ? ": race" : "")), state.step, (i) => {
        state.step = i;
        draw();
      }),
      el("button", { type: "button", onclick: zoom(1 / 1.5) }, "narrower"), el("button", { type: "button", onclick: zoom(1.5) }, "wider")),
    place, detail);
}
