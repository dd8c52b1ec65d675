"use strict";

// Elements are made from names and texts alone: what a report holds never becomes markup.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function plural(count, noun) {
  return count + " " + noun + (count === 1 ? "" : "s");
}

let lastId = 0;
function freshId(prefix) {
  return prefix + "-" + ++lastId;
}

function section(title, ...children) {
  const id = freshId("section");
  return el("section", { "aria-labelledby": id }, el("h3", { id }, title), children);
}

// A label with a select in it. options: texts; chosen: what is called with the number of the chosen one.
function chooser(label, options, start, chosen) {
  const select = el("select", { onchange: () => chosen(Number(select.value)) }, options.map((text, i) => el("option", { value: i, selected: i === start }, text)));
  return el("label", {}, label + " ", select);
}

function tick(label, start, changed) {
  const box = el("input", { type: "checkbox", checked: start, onchange: () => changed(box.checked) });
  return el("label", {}, box, " " + label);
}

// One of many cells is in the order of tabs; arrows go to the next ones. rows: of elements with a place of their own, in `place`.
function roving(root, rows, shown) {
  const at = new Map();
  rows.forEach((row, r) => row.forEach((cell, c) => at.set(cell, [r, c])));
  let current = rows.find((row) => row.length > 0);
  current = current && current[0];
  if (!current) return;
  const take = (cell) => {
    current.setAttribute("tabindex", "-1");
    current = cell;
    current.setAttribute("tabindex", "0");
    shown(current);
  };
  current.setAttribute("tabindex", "0");
  const nearest = (row, place) => row.reduce((best, cell) => (Math.abs(cell.place - place) < Math.abs(best.place - place) ? cell : best), row[0]);
  const target = (key, r, c) => {
    if (key === "ArrowRight") return rows[r][c + 1];
    if (key === "ArrowLeft") return rows[r][c - 1];
    if (key === "Home") return rows[r][0];
    if (key === "End") return rows[r][rows[r].length - 1];
    const step = key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0;
    for (let next = r + step; step !== 0 && rows[next]; next += step) if (rows[next].length > 0) return nearest(rows[next], rows[r][c].place);
    return undefined;
  };
  root.addEventListener("keydown", (event) => {
    const cell = event.target.closest("[data-cell]");
    if (!cell || !at.has(cell) || event.ctrlKey || event.altKey || event.metaKey) return;
    const next = target(event.key, ...at.get(cell));
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
  const of = (event) => {
    const cell = event.target.closest("[data-cell]");
    return cell && at.has(cell) ? cell : null;
  };
  root.addEventListener("focusin", (event) => of(event) && take(of(event)));
  root.addEventListener("mouseover", (event) => of(event) && shown(of(event)));
  root.addEventListener("click", (event) => of(event) && of(event).focus());
}

function detailLine(hint) {
  return el("p", { class: "detail", role: "status", "aria-live": "polite" }, hint);
}

const kib = 1024;
function bytesText(bytes) {
  if (bytes < kib) return bytes + " B";
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = bytes / kib;
  let unit = 0;
  while (value >= kib && unit + 1 < units.length) {
    value /= kib;
    ++unit;
  }
  return (Number.isInteger(value) ? value : value.toFixed(2)) + " " + units[unit];
}

// "0-2, 5"
function rangesText(numbers) {
  const out = [];
  for (let i = 0; i < numbers.length; ) {
    let j = i;
    while (j + 1 < numbers.length && numbers[j + 1] === numbers[j] + 1) ++j;
    out.push(i === j ? String(numbers[i]) : numbers[i] + "-" + numbers[j]);
    i = j + 1;
  }
  return out.join(", ");
}

function numbered(noun, numbers) {
  const distinct = [...new Set(numbers)].sort((a, b) => a - b);
  return noun + (distinct.length === 1 ? " " : "s ") + rangesText(distinct);
}
