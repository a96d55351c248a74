// Lines that dysens.ratios computed are read off here; the rules behind them are Python's alone.

// The ratio on a group's line for a loss threshold, or null if it stays whole. A segment is [loss, ratio, nextLoss, nextRatio].
function ratioAt(segments, threshold) {
  const segment = segments.filter(([loss]) => loss <= threshold).pop();
  if (segment === undefined) return null;
  const [loss, ratio, nextLoss, nextRatio] = segment;
  return nextLoss === null ? ratio : ratio + (threshold - loss) * (nextRatio - ratio) / (nextLoss - loss);
}

// The predicted loss on a group's line of [ratio, loss]; infinite beyond its end, and where a loss is unknown (null).
function lossAt(line, ratio) {
  const above = line.findIndex(([measured]) => ratio <= measured);
  if (above < 0 || line[above][1] === null) return Infinity;
  const [nextRatio, nextLoss] = line[above];
  if (ratio === nextRatio) return nextLoss;
  const [belowRatio, belowLoss] = line[above - 1];
  return belowLoss + (ratio - belowRatio) / (nextRatio - belowRatio) * (nextLoss - belowLoss);
}

// The costs of dysens.pruning.costs, value for value.

// Python's round: halves go to the even neighbour.
function roundHalfEven(value) {
  const below = Math.floor(value), rest = value - below;
  if (rest !== 0.5) return Math.round(value);
  return below % 2 === 0 ? below : below + 1;
}

class Costs {
  constructor(data) {
    this.groups = data.groups.map(([, , channels, steps, , losing]) => ({channels, steps, losing}));
    this.widths = data.widths.map(([size, losing]) => ({size, losing}));
    this.terms = data.terms;
    this.places = data.places;
    this.whole = this.left(data.places.map(() => 0));
  }

  group(index) {
    return this.groups[this.places[index]];
  }

  stepAt(group, ratio) {
    return Math.min(roundHalfEven(group.steps * ratio), group.steps - 1);
  }

  static lost(losing, step) {
    return Array.isArray(losing) ? losing[step] : losing * step;
  }

  channelsLeft(index, ratio) {
    const group = this.group(index);
    return group.channels - Costs.lost(group.losing, this.stepAt(group, ratio));
  }

  // FLOPs and parameters that remain, for one ratio per group of the page.
  left(ratios) {
    const steps = this.groups.map(() => 0);
    ratios.forEach((ratio, index) => { steps[this.places[index]] = this.stepAt(this.group(index), ratio); });
    const left = this.widths.map(({size, losing}) =>
      losing.reduce((rest, [group, less]) => rest - Costs.lost(less, steps[group]), size));
    let flops = 0, params = 0;
    for (const [flopsEach, paramsEach, widths] of this.terms) {
      flops += widths.reduce((part, width) => part * left[width], flopsEach);
      params += widths.reduce((part, width) => part * left[width], paramsEach);
    }
    return {flops, params};
  }
}
