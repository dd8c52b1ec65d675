"use strict";

// Okabe and Ito's colours, which colour-blind readers tell apart.
const purposeColours = { weights: "#0072b2", gradients: "#e69f00", buckets: "#56b4e9", accumulators: "#d55e00", "master weights": "#009e73", "master gradients": "#cc79a7",
  "optimizer state": "#f0e442", scalars: "#888888", other: "#555555" };
const sums = ["gradient memory", "all"]; // of other kinds

function purposesOf(bytes) {
  return Object.entries(bytes).filter(([kind]) => !sums.includes(kind));
}

function total(bytes) {
  return purposesOf(bytes).reduce((sum, [, value]) => sum + value, 0);
}

function peakOf(bytes) {
  return Math.max(0, ...Object.values(bytes));
}

function bytesBar(space, most) {
  const width = 260;
  const scale = most > 0 ? width / most : 0;
  const bar = svg("svg", { class: "bytes", width: width + 4, height: 16, viewBox: "0 0 " + (width + 4) + " 16", role: "img",
    "aria-label": "resident " + bytesText(total(space.resident)) + ", peak " + bytesText(peakOf(space.peak)) });
  let x = 0;
  for (const [kind, value] of purposesOf(space.resident)) {
    bar.append(svg("rect", { x, y: 2, width: value * scale, height: 12, fill: purposeColours[kind] || "#555555" }, svg("title", {}, kind + ": " + bytesText(value))));
    x += value * scale;
  }
  const peak = peakOf(space.peak) * scale;
  if (peak > width) bar.append(svg("text", { x: width - 9, y: 13, class: "beyond" }, "\u25b6"));
  else bar.append(svg("line", { class: "peak", x1: peak + 1, x2: peak + 1, y1: 0, y2: 16 }));
  return bar;
}

function purposesText(bytes) {
  return purposesOf(bytes).map(([kind, value]) => kind + " " + bytesText(value)).join(", ");
}

function memoryRows(group, most) {
  const out = group.start.map((space) => el("tr", {}, el("th", { scope: "row" }, "start"), el("td", {}, ""), el("td", {}, space.space),
    el("td", {}, bytesBar({ resident: space.resident, peak: space.resident }, most)),
    el("td", { class: "number" }, bytesText(total(space.resident))), el("td", {}, ""), el("td", {}, purposesText(space.resident)), el("td", {}, "")));
  for (const window of group.windows) {
    const name = window.first === window.last ? "step " + window.first : "steps " + window.first + "-" + window.last;
    for (const phase of window.phases) {
      const sent = (phase.sent || []).map((s) => s.count + " \u00d7 " + s.what + ", " + bytesText(s.bytes) + " in all").join("; ");
      (phase.spaces || []).forEach((space, i) => out.push(el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, phase.phase), el("td", {}, space.space), el("td", {}, bytesBar(space, most)),
        el("td", { class: "number" }, bytesText(total(space.resident))), el("td", { class: "number" }, bytesText(peakOf(space.peak))),
        el("td", {}, purposesText(space.resident)), el("td", {}, i === 0 ? sent || "nothing" : ""))));
    }
  }
  return out;
}

function mostOf(accounting, bytesOf) {
  let most = 0;
  for (const group of accounting.ranks)
    for (const window of group.windows) for (const phase of window.phases) for (const space of phase.spaces || []) most = Math.max(most, bytesOf(space));
  return most;
}

function mostPeak(accounting) {
  return mostOf(accounting, (space) => peakOf(space.peak));
}

function drawMemory(accounting) {
  // A peak far beyond what stays would leave nothing to see of that: it is drawn as an arrow at the edge.
  const most = Math.min(mostPeak(accounting), 4 * mostOf(accounting, (space) => total(space.resident)));
  const place = el("div", { class: "scroll" });
  const draw = (i) => place.replaceChildren(el("table", {},
    el("thead", {}, el("tr", {}, ["step", "phase", "memory", "resident after it; line: peak, \u25b6: beyond", "resident", "peak", "resident, by purpose", "sent"]
      .map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, memoryRows(accounting.ranks[i], most))));
  draw(0);
  const legend = el("ul", { class: "legend", "aria-label": "Legend" }, Object.entries(purposeColours)
    .map(([kind, colour]) => el("li", {}, el("span", { class: "swatch", style: "background:" + colour }, "\u00a0"), kind)));
  const choose = accounting.ranks.length > 1 ? el("div", { class: "controls" }, chooser("Ranks", accounting.ranks.map((group) => numbered("rank", group.ranks)), 0, draw))
    : el("p", {}, "All ranks hold and send the same: " + numbered("rank", accounting.ranks[0].ranks) + ".");
  return section("Memory and traffic by phase", el("p", { class: "faint" }, "Bytes that the framework would hold and send, counted in a dry run. Activations are not in them."), choose, legend, place,
    accounting.stopped ? el("p", {}, "Stopped: " + accounting.stopped) : null);
}
