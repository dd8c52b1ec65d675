"use strict";

function verdictText(part) {
  if (part.verdict === "clean") return "\u2713 clean: every contribution has its due weight";
  if (part.verdict === "findings") return "\u2717 " + plural(part.findings.length, "finding");
  return "? nothing was judged";
}

function drawFinding(all) {
  const [first] = all;
  const known = first.known;
  const children = [el("p", { class: "sentence" }, first.sentence)];
  if (first.blame) children.push(el("p", {}, "Whose: " + first.blame.whose + (first.blame.rule ? " (" + first.blame.rule + ")" : "") + ". " + first.blame.why));
  if (known)
    children.push(el("p", {}, "Known: " + known.entry + " " + known.name + (known.origin ? " (" + known.origin + ")" : "") + ", " + known.title + "; " +
      (known.since ? "since " + known.since + ", " : "") + (known.fixed ? "fixed in " + known.fixed : "fixed in no release") + "." + (known.avoid ? " To avoid it: " + known.avoid : "") +
      known.of_fewer_ranks));
  if (first.known_not_looked_for) children.push(el("p", {}, "Known: " + first.known_not_looked_for));
  if (first.command) children.push(el("p", {}, "Values that differ: ", el("code", {}, first.command)));
  const line = (f) => f.sentence + " Event " + f.event + ", " + f.pointer + ".";
  if (all.length > 1)
    children.push(el("details", {}, el("summary", {}, "and " + (all.length - 1) + " more like it: " + numbered("step", all.map((f) => f.step)) + ", " + numbered("rank", all.map((f) => f.rank))),
      el("ul", {}, all.slice(1).map((f) => el("li", {}, line(f))))));
  return el("div", { class: "finding" }, children);
}

function byClass(findings) {
  const out = new Map();
  for (const finding of findings) out.set(finding.class, [...(out.get(finding.class) || []), finding]);
  return out;
}

function drawFacts(part) {
  const rows = [["file", part.file], ["engine", part.engine + " as of " + part.as_of + (part.described ? ", " + part.described : "")],
    ["world", plural(part.world_size, "rank") + (part.parameters ? ", " + part.elements + " elements in " + plural(part.parameters, "parameter") + ", " + part.dtype : "")],
    ["producer", part.producer], ["note", part.note], ["judged", (part.coverage || []).join("; ")]];
  return el("dl", { class: "facts" }, rows.filter(([, text]) => text).map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]).flat(),
    el("dt", {}, "repeat with"), el("dd", {}, el("code", {}, part.command)));
}

function drawReplay(part) {
  return [
    el("h2", {}, part.title), el("p", { class: "verdict " + (part.verdict === "clean" ? "clean" : "bad") }, verdictText(part)), drawFacts(part),
    part.findings.length > 0 ? section("Findings", [...byClass(part.findings).values()].map(drawFinding)) : null,
    drawLedger(part.ledger), part.balance ? drawBalance(part.balance) : null, part.lanes ? drawLanes(part.lanes) : null, part.accounting ? drawMemory(part.accounting) : null,
  ].filter(Boolean);
}

function drawAccounting(part) {
  return [el("h2", {}, part.title), drawFacts(part), drawMemory(part.accounting)];
}

// ---- two replays side by side ------------------------------------------------------------------------------------------------------

function sum(part, name) {
  const most = Math.max(0, ...part.findings.map((f) => (typeof f[name] === "number" ? f[name] : 0)));
  return most === 0 ? "0" : (100 * most).toFixed(1) + " %";
}

function compareRows(one, other) {
  const peak = (part) => (part.accounting ? bytesText(mostPeak(part.accounting)) : "not counted");
  const classes = (part) => [...byClass(part.findings).keys()].join(", ") || "none";
  const rows = [["verdict", verdictText], ["as of", (part) => part.as_of], ["findings", classes],
    ["most that a window loses", (part) => sum(part, "lost")], ["most that is too much", (part) => sum(part, "excess")],
    ["most bytes on a rank", peak]];
  return rows.map(([name, of]) => {
    const [a, b] = [of(one), of(other)];
    return el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, a), el("td", {}, b), el("td", {}, a === b ? "same" : "\u2260 differs"));
  });
}

function drawCompare(parts) {
  const state = { one: 0, other: 1 };
  const place = el("div", {});
  const draw = () => {
    const [one, other] = [parts[state.one], parts[state.other]];
    place.replaceChildren(
      el("table", {}, el("thead", {}, el("tr", {}, ["", one.title, other.title, ""].map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, compareRows(one, other))),
      el("div", { class: "compare" }, el("div", {}, drawReplay(one)), el("div", {}, drawReplay(other))));
  };
  draw();
  const change = (name) => (i) => {
    state[name] = i;
    draw();
  };
  const titles = parts.map((part, i) => i + 1 + ": " + part.title);
  return [el("h2", {}, "Side by side"), el("div", { class: "controls" }, chooser("Left", titles, 0, change("one")), chooser("Right", titles, 1, change("other"))), place];
}
