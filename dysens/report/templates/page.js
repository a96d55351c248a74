// The page: what is set, what follows from it, and how both are shown.

const DATA = JSON.parse(document.getElementById("data").textContent);
const GROUPS = DATA.groups;
const COSTS = DATA.costs === null ? null : new Costs(DATA.costs);
const SCALE = lossScale(GROUPS);
const TARGETS = DATA.targets.map(([target, ratios]) => ({target, ratios}));
const SLIDER_STEPS = 1000;
const byId = (id) => document.getElementById(id);

const state = {
  language: DATA.language ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en"),
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  mode: "loss",
  threshold: Math.min(DATA.threshold, SCALE.top),
  target: nearestTarget(0.3),
  cautious: true,
  sort: {key: null, down: false},
};
let words = WORDS[state.language];

const panels = GROUPS.map((group) => new Panel(group, SCALE));
const rows = GROUPS.map(makeRow);
const chart = TARGETS.length ? new BudgetChart([[0, 0], ...TARGETS.map(({ratios}) => budgetPoint(ratios))]) : null;

function budgetPoint(ratios) {
  const chosen = ratios.map((ratio) => (ratio > 0 ? ratio : null));
  return [1 - COSTS.left(ratios).flops / COSTS.whole.flops, totalLoss(chosen)];
}

// One ratio per group, or null where a group stays whole: what Python's ratios_by_loss and ratios_by_flops give.
function chosenRatios() {
  if (state.mode === "flops") return TARGETS[state.target].ratios.map((ratio) => (ratio > 0 ? ratio : null));
  return GROUPS.map((group) => ratioAt(group[state.cautious ? "cautious" : "paddleslim"], state.threshold));
}

function totalLoss(ratios) {
  return ratios.reduce((sum, ratio, index) => (ratio === null ? sum : sum + lossAt(GROUPS[index].predicted, ratio)), 0);
}

// The ratios as text, by layer path, with the digits that Python's write_ratio_file has.
function ratiosAs(kind) {
  const pairs = chosenRatios().map((ratio, index) => [GROUPS[index].path, Number((ratio ?? 0).toFixed(9))])
    .filter(([, ratio]) => ratio > 0);
  if (kind === "json") return JSON.stringify(Object.fromEntries(pairs), null, 1) + "\n";
  return pairs.map(([path, ratio]) => `${yamlString(path)}: ${yamlNumber(ratio)}\n`).join("") || "{}\n";
}

// A JSON string is a YAML string, but for the line breaks that only YAML knows.
function yamlString(text) {
  const escaped = (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(text).replace(/[\u007f-\u009f\u2028\u2029\ufeff]/g, escaped);
}

function yamlNumber(value) {
  const text = String(value);
  return text.includes("e") ? value.toFixed(9) : text; // YAML 1.1 takes 1e-7 for a word
}

// Writing down what follows from the state

function makeRow(group, index) {
  const cells = ["label", "channels", "ratio", "left", "loss"].map((key) =>
    html(key === "label" ? "th" : "td", key === "label" ? {scope: "row", title: group.label} : {class: "number"}));
  cells[0].textContent = group.label;
  const row = html("tr", {"data-name": group.name, "data-path": group.path}, cells);
  const channels = COSTS === null ? null : COSTS.group(index).channels;
  cells[1].textContent = channels ?? "–";
  return {row, cells, values: {label: group.label, channels}};
}

function show() {
  const ratios = chosenRatios();
  ratios.forEach((ratio, index) => showGroup(index, ratio));
  showFigures(ratios);
  showSetting();
  byId("text").hidden = true;
  byId("copied").textContent = "";
}

function showGroup(index, ratio) {
  const group = GROUPS[index], {row, cells, values} = rows[index];
  const measured = group.points.length > 0;
  const left = COSTS === null ? null : COSTS.channelsLeft(index, ratio ?? 0);
  const loss = ratio === null ? 0 : lossAt(group.predicted, ratio);
  Object.assign(values, {ratio: ratio ?? 0, left, loss: measured ? loss : null});
  row.dataset.ratio = ratio ?? "";
  row.dataset.left = left ?? "";
  row.dataset.loss = measured ? loss : "";
  cells[2].textContent = measured ? (ratio ?? 0).toFixed(3) : "–";
  cells[2].style.setProperty("--bar", ratio ?? 0);
  cells[2].title = measured ? "" : words.notMeasured;
  cells[3].textContent = left ?? "–";
  cells[4].textContent = measured ? lossText(loss, limitDigits()) : "–";
  const shown = ratio === null ? (measured ? words.whole : words.notMeasured) : ratioNote(index, ratio, left);
  const spoken = words.panel(group.label, ratio === null ? words.whole : ratio.toFixed(3));
  panels[index].show(state.mode === "loss" ? state.threshold : null, ratio, shown, spoken);
}

function ratioNote(index, ratio, left) {
  return ratio.toFixed(2) + (left === null ? "" : ` · ${COSTS.group(index).channels} → ${left}`);
}

// With the digits of the limit, so that rounding shows no layer above it.
function lossText(loss, digits = 4) {
  if (!Number.isFinite(loss)) return "?";
  const text = loss.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text;
}

function limitDigits() {
  const [, decimals = ""] = String(Number(state.threshold.toFixed(9))).split(".");
  return state.mode === "loss" ? Math.max(4, decimals.length) : 4;
}

function showFigures(ratios) {
  const loss = totalLoss(ratios);
  showFigure("loss", loss, lossText(loss));
  const cut = ratios.filter((ratio) => ratio !== null && ratio > 0).length;
  showFigure("layers", cut, String(cut));
  byId("loss-note").textContent = words.predictedNote(scatterOf(cut));
  byId("layers-note").textContent = words.ofLayers(GROUPS.length);
  if (COSTS === null) {
    for (const id of ["flops", "params"]) showFigure(id, "", words.unknown);
    return;
  }
  const left = COSTS.left(ratios.map((ratio) => ratio ?? 0));
  for (const id of ["flops", "params"]) {
    const whole = COSTS.whole[id], less = whole ? 100 * (1 - left[id] / whole) : 0;
    showFigure(id, left[id], amount(left[id]));
    byId(`${id}-note`).textContent = words.of(amount(whole), `${less.toFixed(1)}%`);
  }
  if (chart !== null) chart.show(1 - left.flops / COSTS.whole.flops, loss, words);
}

// Of a sum over so many layers, as text; null if the curves say nothing of it.
function scatterOf(layers) {
  return DATA.scatter === null || layers === 0 ? null : (DATA.scatter * Math.sqrt(layers)).toFixed(4);
}

function showFigure(id, value, text) {
  byId(id).textContent = text;
  byId(id).dataset.value = value;
}

function amount(value) {
  const [size, letter] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([size]) => value >= size) ?? [1, ""];
  return size === 1 ? String(Math.round(value)) : `${(value / size).toPrecision(4)} ${letter}`;
}

function showSetting() {
  const byLoss = state.mode === "loss";
  const percent = byLoss ? 0 : Math.round(100 * TARGETS[state.target].target);
  byId("slider").value = byLoss ? sliderAt(state.threshold) : state.target;
  if (document.activeElement !== byId("exact")) byId("exact").value = byLoss ? state.threshold : percent;
  byId("slider").setAttribute("aria-valuetext", byLoss ? words.lossValue(state.threshold) : words.flopsValue(percent));
}

// Small losses are what people choose among: the slider moves slowly there.
function sliderAt(threshold) {
  return Math.round(SLIDER_STEPS * Math.sqrt(Math.max(threshold, 0) / SCALE.top));
}

function thresholdAt(position) {
  const share = position / SLIDER_STEPS;
  return Math.round(1e4 * SCALE.top * share * share) / 1e4;
}

function showMode() {
  const byLoss = state.mode === "loss", slider = byId("slider"), exact = byId("exact");
  slider.max = byLoss ? SLIDER_STEPS : TARGETS.length - 1;
  exact.min = byLoss ? "" : Math.round(100 * TARGETS[0].target);
  exact.max = byLoss ? "" : Math.round(100 * TARGETS[TARGETS.length - 1].target);
  exact.step = byLoss ? "any" : Math.round(100 * TARGETS[0].target);
  byId("unit").textContent = byLoss ? "" : "%";
  byId("slider-label").textContent = byLoss ? words.lossLabel : words.flopsLabel;
  byId("hint").textContent = byLoss ? (state.cautious ? words.hintLoss : words.hintSlim) : words.hintFlops(Math.round(100 * TARGETS[TARGETS.length - 1].target));
  byId("monotone-label").classList.toggle("off", !byLoss);
  byId("monotone").disabled = !byLoss;
  byId("monotone").checked = state.cautious;
}

function sortRows() {
  const {key, down} = state.sort;
  for (const head of document.querySelectorAll("#table th[data-key]")) {
    head.setAttribute("aria-sort", head.dataset.key !== key ? "none" : down ? "descending" : "ascending");
  }
  const order = rows.map((_, index) => index);
  if (key !== null) order.sort((a, b) => (down ? -1 : 1) * compared(rows[a].values[key], rows[b].values[key]) || a - b);
  document.querySelector("#table tbody").append(...order.map((index) => rows[index].row));
}

function compared(one, other) {
  if (typeof one === "string") return one.localeCompare(other, "en", {numeric: true});
  return (one ?? -Infinity) - (other ?? -Infinity) || 0;
}

function showWords() {
  words = WORDS[state.language];
  document.documentElement.lang = state.language === "zh" ? "zh-CN" : "en";
  for (const element of document.querySelectorAll("[data-word]")) element.textContent = words[element.dataset.word];
  byId("title").textContent = DATA.title ?? words.title;
  const points = GROUPS.reduce((sum, group) => sum + group.points.length, 0);
  const baseline = DATA.baseline === null ? null : Number(DATA.baseline.toPrecision(6));
  const facts = words.facts(GROUPS.length, points, baseline, DATA.higherIsBetter);
  byId("facts").textContent = [DATA.source, facts].filter(Boolean).join(" · ");
  byId("about").textContent = words.about(DATA.about).filter(Boolean).join(" · ");
  byId("language").textContent = words.otherLanguage;
  byId("language").setAttribute("aria-label", words.otherLanguageLabel);
  byId("curves-note").textContent = words.curvesNote(shortNumber(SCALE.low), shortNumber(SCALE.top));
  byId("notes").textContent = notes().join(" ");
  byId("heat").replaceChildren(...heatTable(GROUPS, SCALE, words));
  showTheme();
  showMode();
  show();
}

function notes() {
  const partial = GROUPS.reduce((sum, group) => sum + group.partial.length, 0);
  const unscored = GROUPS.reduce((sum, group) => sum + group.points.filter((point) => point[1] === null).length, 0);
  const found = [];
  if (DATA.withoutCosts.length) found.push(words.someCosts(DATA.withoutCosts.join(", ")));
  else if (COSTS === null) found.push(words.noCosts);
  else if (!TARGETS.length) found.push(DATA.live ? words.liveTargets : words.noTargets);
  if (partial) found.push(words.partialNote(partial));
  if (unscored) found.push(words.unscoredNote(unscored));
  return found;
}

function showTheme() {
  document.documentElement.dataset.theme = state.dark ? "dark" : "light";
  byId("theme").textContent = state.dark ? words.toLight : words.toDark;
}

// What the reader does

function onSlider() {
  const position = Number(byId("slider").value);
  if (state.mode === "loss") state.threshold = thresholdAt(position);
  else state.target = position;
  show();
}

function onExact() {
  const value = byId("exact").valueAsNumber;
  if (!Number.isFinite(value)) return;
  if (state.mode === "loss") state.threshold = value;
  else state.target = nearestTarget(value / 100);
  show();
}

function nearestTarget(share) {
  const distance = ({target}) => Math.abs(target - share);
  return TARGETS.reduce((best, target, index) => (distance(target) < distance(TARGETS[best]) ? index : best), 0);
}

function onMode(event) {
  state.mode = event.target.value;
  showMode();
  show();
  sortRows();
}

function onRule(event) {
  state.cautious = event.target.checked;
  showMode();
  show();
  sortRows();
}

function onSort(event) {
  const {key} = event.target.closest("th").dataset;
  state.sort = {key, down: state.sort.key === key ? !state.sort.down : key !== "label"};
  sortRows();
}

async function onCopy(event) {
  const text = ratiosAs(event.target.dataset.copy);
  try {
    await navigator.clipboard.writeText(text);
    byId("copied").textContent = words.copied;
  } catch { // a page from a file may not reach the clipboard: show the text instead
    byId("copied").textContent = words.copyByHand;
    byId("text").value = text;
    byId("text").hidden = false;
    byId("text").select();
  }
}

function onSave(event) {
  const kind = event.target.dataset.save;
  const file = new Blob([ratiosAs(kind)], {type: kind === "json" ? "application/json" : "application/yaml"});
  const link = html("a", {href: URL.createObjectURL(file), download: `ratios.${kind}`});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function drawChart() {
  chart.draw(Math.max(byId("budget").clientWidth, 200));
}

function start() {
  byId("curves").append(...panels.map((panel) => panel.element));
  byId("budget-card").hidden = chart === null;
  if (chart !== null) {
    byId("budget").append(chart.element);
    drawChart();
    addEventListener("resize", () => { drawChart(); show(); });
  }
  for (const input of document.querySelectorAll("input[name=mode]")) {
    input.disabled = input.value === "flops" && !TARGETS.length;
    input.addEventListener("change", onMode);
  }
  byId("slider").addEventListener("input", onSlider);
  byId("slider").addEventListener("change", sortRows);
  byId("exact").addEventListener("input", onExact);
  byId("exact").addEventListener("change", () => { showSetting(); sortRows(); });
  byId("exact").addEventListener("blur", showSetting);
  byId("monotone").addEventListener("change", onRule);
  byId("language").addEventListener("click", () => { state.language = state.language === "en" ? "zh" : "en"; showWords(); });
  byId("theme").addEventListener("click", () => { state.dark = !state.dark; showTheme(); });
  for (const button of document.querySelectorAll("#table th button")) button.addEventListener("click", onSort);
  for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", onCopy);
  for (const button of document.querySelectorAll("[data-save]")) button.addEventListener("click", onSave);
  showWords();
  sortRows();
}

start();
