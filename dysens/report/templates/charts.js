// Drawing: inline SVG that takes its colours from the style sheet. What is drawn is text, never HTML.

function svg(name, attributes = {}, children = []) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function html(name, attributes = {}, children = []) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function shortNumber(value) {
  if (!Number.isFinite(value)) return "∞";
  const rounded = Number(value.toPrecision(3));
  return String(Object.is(rounded, -0) ? 0 : rounded);
}

// One loss scale for all panels and cells: up to the largest loss, but a loss of 1 means all is lost, and more says no more.
function lossScale(groups) {
  const losses = groups.flatMap((group) => [...group.points, ...group.partial].map((point) => point[1]))
    .filter((loss) => loss !== null);
  const top = Math.min(Math.max(...losses, 0.01), 1);
  return {top, low: Math.max(Math.min(...losses, 0), -top)};
}

const PANEL = {width: 132, height: 72, left: 4, right: 4, top: 6, bottom: 6};

class Panel {
  constructor(group, scale) {
    this.group = group;
    this.scale = scale;
    this.caption = html("figcaption", {title: group.label}, [group.caption]);
    this.note = html("span", {class: "muted"});
    this.threshold = svg("line", {class: "threshold", x1: PANEL.left, x2: PANEL.width - PANEL.right});
    this.chosen = svg("line", {class: "chosen", y1: PANEL.top, y2: PANEL.height - PANEL.bottom});
    this.picture = svg("svg", {viewBox: `0 0 ${PANEL.width} ${PANEL.height}`, role: "img"}, this.marks());
    this.element = html("figure", {}, [this.caption, this.picture, this.note]);
  }

  x(ratio) {
    return PANEL.left + ratio * (PANEL.width - PANEL.left - PANEL.right);
  }

  y(loss) {
    const {top, low} = this.scale, height = PANEL.height - PANEL.top - PANEL.bottom;
    const within = Math.max(Math.min(loss, top), low);
    return PANEL.top + (1 - (within - low) / (top - low)) * height;
  }

  marks() {
    const scored = this.group.points.filter((point) => point[1] !== null);
    const at = ([ratio, loss]) => `${this.x(ratio).toFixed(2)},${this.y(loss).toFixed(2)}`;
    const zero = this.y(0), line = scored.map(at).join(" ");
    const parts = [svg("line", {class: "axis", x1: this.x(0), x2: this.x(1), y1: zero, y2: zero})];
    if (scored.length > 1) {
      const ends = [scored[0], scored[scored.length - 1]].map(([ratio]) => this.x(ratio).toFixed(2));
      parts.push(svg("polygon", {class: "area", points: `${ends[0]},${zero} ${line} ${ends[1]},${zero}`}));
    }
    parts.push(this.threshold, this.chosen, svg("polyline", {class: "curve", points: line}));
    for (const point of scored) parts.push(this.dot(point, "dot"));
    for (const point of this.group.points) if (point[1] === null) parts.push(this.cross(point[0]));
    for (const point of this.group.partial) if (point[1] !== null) parts.push(this.dot(point, "partial"));
    return parts;
  }

  dot([ratio, loss], kind) {
    return svg("circle", {class: kind, cx: this.x(ratio), cy: this.y(loss), r: kind === "dot" ? 1.7 : 2.4});
  }

  cross(ratio) {
    const x = this.x(ratio), y = PANEL.top, size = 2.6;
    const path = `M${x - size},${y - size}l${2 * size},${2 * size}M${x - size},${y + size}l${2 * size},${-2 * size}`;
    return svg("path", {class: "unscored", d: path});
  }

  // Show what is chosen: a threshold (or null), a ratio (or null), and words for both.
  show(threshold, ratio, note, spoken) {
    this.threshold.toggleAttribute("hidden", threshold === null || threshold > this.scale.top);
    this.chosen.toggleAttribute("hidden", !ratio);
    for (const end of ["y1", "y2"]) this.threshold.setAttribute(end, this.y(threshold ?? 0));
    for (const end of ["x1", "x2"]) this.chosen.setAttribute(end, this.x(ratio ?? 0));
    this.note.textContent = note;
    this.picture.setAttribute("aria-label", spoken);
  }
}

const CHART = {height: 220, left: 44, right: 22, top: 12, bottom: 38, largestLoss: 1};

// Round numbers from 0 to the top, some four of them.
function ticks(top) {
  const rough = top / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= 0.8 * rough) * power;
  return Array.from({length: Math.floor(top / step + 1e-9) + 1}, (_, index) => index * step);
}

// Predicted loss against the share of FLOPs removed, with a dot at the choice.
class BudgetChart {
  constructor(points) {
    // A loss of 1 means that all is lost; how much more than all would flatten the part that matters.
    const sensible = points.filter(([, loss]) => loss <= CHART.largestLoss);
    this.points = sensible.length > 2 ? sensible : points.filter(([, loss]) => Number.isFinite(loss));
    this.right = Math.max(...this.points.map(([removed]) => removed), 0.01);
    this.top = Math.max(...this.points.map(([, loss]) => loss), 0.01);
    this.element = svg("svg", {role: "img"});
  }

  at([removed, loss]) {
    const width = this.width - CHART.left - CHART.right, height = CHART.height - CHART.top - CHART.bottom;
    return [CHART.left + width * removed / this.right, CHART.top + height * (1 - loss / this.top)];
  }

  // As wide as there is room, so that letters keep their size.
  draw(width) {
    this.width = width;
    this.dot = svg("circle", {class: "choice", r: 5});
    this.axis = svg("text", {x: (CHART.left + width - CHART.right) / 2, y: CHART.height - 4, "text-anchor": "middle"});
    const line = this.points.map((point) => this.at(point).map((each) => each.toFixed(1)).join(",")).join(" ");
    this.element.setAttribute("viewBox", `0 0 ${width} ${CHART.height}`);
    this.element.replaceChildren(...this.grid(), svg("polyline", {class: "curve", points: line}), this.dot, this.axis);
  }

  grid() {
    const parts = [];
    for (const loss of ticks(this.top)) {
      const [, y] = this.at([0, loss]);
      parts.push(svg("line", {class: "axis", x1: CHART.left, x2: this.width - CHART.right, y1: y, y2: y}));
      parts.push(svg("text", {x: CHART.left - 6, y: y + 4, "text-anchor": "end"}, [shortNumber(loss)]));
    }
    for (const removed of ticks(this.right)) {
      const [x] = this.at([removed, 0]), y = CHART.height - CHART.bottom + 16;
      parts.push(svg("text", {x, y, "text-anchor": "middle"}, [`${shortNumber(100 * removed)}%`]));
    }
    return parts;
  }

  show(removed, loss, words) {
    const inside = removed <= this.right + 0.01 && loss <= 1.05 * this.top;
    this.dot.toggleAttribute("hidden", !inside);
    const [x, y] = this.at([removed, inside ? loss : 0]);
    this.dot.setAttribute("cx", x);
    this.dot.setAttribute("cy", y);
    this.axis.textContent = words.removedAxis;
    this.element.setAttribute("aria-label", `${words.budget}: ${(100 * removed).toFixed(1)}%, ${shortNumber(loss)}`);
  }
}

// A table of losses, layers down and ratios across; colour says how bad.
function heatTable(groups, scale, words) {
  const ratios = [...new Set(groups.flatMap((group) => group.points.map((point) => point[0])))].sort((a, b) => a - b);
  const head = html("tr", {}, [html("td"), ...ratios.map((ratio) => html("th", {scope: "col"}, [String(ratio)]))]);
  const rows = groups.map((group) => {
    const losses = new Map(group.points);
    const name = html("th", {scope: "row", title: group.label}, [group.heading]);
    return html("tr", {}, [name, ...ratios.map((ratio) => heatCell(group, ratio, losses.get(ratio), scale, words))]);
  });
  return [html("thead", {}, [head]), html("tbody", {}, rows)];
}

function heatCell(group, ratio, loss, scale, words) {
  if (loss === undefined) return html("td", {class: "empty"});
  const depth = loss === null ? 1 : Math.max(0, Math.min(loss / scale.top, 1));
  const tip = `${group.label}\n${words.pointTip(ratio, loss === null ? words.noScore : shortNumber(loss))}`;
  const cell = html("td", {title: tip}, [loss === null ? "×" : heatText(loss)]);
  cell.style.setProperty("--depth", depth.toFixed(3));
  return cell;
}

function heatText(loss) {
  const text = Math.abs(loss) < 99.5 ? loss.toFixed(2) : shortNumber(loss);
  return text === "-0.00" ? "0.00" : text;
}
