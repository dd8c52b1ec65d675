"use strict";

// Tables with one title that follow each other are rows of one.
function joined(parts) {
  const out = [];
  for (const part of parts) {
    const last = out[out.length - 1];
    if (last && part.kind === "table" && last.kind === "table" && last.title === part.title) {
      last.rows.push(...part.rows);
      last.sentences = [...(last.sentences || []), ...(part.sentences || [])];
      last.command = part.command || last.command;
    } else out.push(part);
  }
  return out;
}

function drawPart(part) {
  if (part.kind === "replay") return drawReplay(part);
  if (part.kind === "accounting") return drawAccounting(part);
  if (part.kind === "matrix") return drawMatrix(part);
  return drawTable(part);
}

// A tab for each part; what is behind it is drawn when it is first opened, or printed.
function tabs(list, nav, main) {
  nav.setAttribute("role", "tablist");
  const all = list.map(({ title, className, draw }) => {
    const panelId = freshId("panel");
    const tabId = freshId("tab");
    const panel = el("div", { role: "tabpanel", id: panelId, "aria-labelledby": tabId, class: className, hidden: true });
    const tab = el("button", { type: "button", role: "tab", id: tabId, "aria-controls": panelId, "aria-selected": "false", tabindex: -1, title }, title);
    let drawn = false;
    return { tab, panel, fill: () => {
      if (!drawn) panel.append(...draw());
      drawn = true;
    } };
  });
  const open = (chosen) => {
    all.forEach(({ tab, panel, fill }, i) => {
      if (i === chosen) fill();
      panel.hidden = i !== chosen;
      tab.setAttribute("aria-selected", String(i === chosen));
      tab.tabIndex = i === chosen ? 0 : -1;
    });
  };
  all.forEach(({ tab, panel }, i) => {
    tab.addEventListener("click", () => open(i));
    tab.addEventListener("keydown", (event) => {
      const next = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: all.length - 1 }[event.key];
      if (next === undefined || !all[next]) return;
      event.preventDefault();
      open(next);
      all[next].tab.focus();
    });
    nav.append(tab);
    main.append(panel);
  });
  window.addEventListener("beforeprint", () => all.forEach(({ panel, fill }) => panel.classList.contains("compare-panel") || fill()));
  open(0);
}

function start() {
  const main = document.getElementById("main");
  const nav = document.getElementById("parts");
  try {
    const parts = joined([...document.querySelectorAll("script.part")].map((script) => JSON.parse(script.textContent)));
    document.title = (parts.length === 1 ? parts[0].title : plural(parts.length, "report")) + " \u2013 gradledger";
    const list = parts.map((part) => ({ title: part.title, className: null, draw: () => drawPart(part) }));
    const replays = parts.filter((part) => part.kind === "replay");
    if (replays.length > 1) list.push({ title: "Side by side", className: "compare-panel", draw: () => drawCompare(replays) });
    if (list.length === 1) {
      nav.hidden = true;
      main.append(...list[0].draw());
    } else tabs(list, nav, main);
  } catch (error) {
    main.append(el("p", { class: "broken", role: "alert" }, "This page cannot be drawn: " + error.message));
    throw error;
  }
  document.documentElement.dataset.drawn = "yes";
}

document.addEventListener("DOMContentLoaded", start);
