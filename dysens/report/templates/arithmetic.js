// The rules of dysens.ratios._by_loss and dysens.pruning.costs, value for value. A point is [ratio, loss], by rising ratio.

function lossAt(point) {
  return point[1] === null ? Infinity : point[1];
}

function monotoneEnvelope(points) {
  let highest = -Infinity;
  return points.map((point) => [point[0], (highest = Math.max(highest, lossAt(point)))]);
}

// The ratio that a loss threshold picks, or null if every loss is above it.
function ratioByLoss(points, threshold, monotone) {
  const curve = monotone ? monotoneEnvelope(points) : points;
  let last = -1;
  curve.forEach((point, index) => { if (lossAt(point) <= threshold) last = index; });
  if (last < 0) return null;
  const [ratio] = curve[last], loss = lossAt(curve[last]);
  if (last === curve.length - 1) return ratio;
  const [nextRatio] = curve[last + 1], nextLoss = lossAt(curve[last + 1]);
  if (!Number.isFinite(nextLoss)) return ratio;
  return ratio + (threshold - loss) * (nextRatio - ratio) / (nextLoss - loss);
}

function predictedLoss(points, ratio) {
  const others = points.filter((point) => point[0] !== 0);
  let belowRatio = 0, belowLoss = 0;
  for (const [aboveRatio, aboveLoss] of monotoneEnvelope([[0, 0], ...others])) {
    if (ratio === aboveRatio) return aboveLoss;
    if (ratio < aboveRatio) {
      const step = (ratio - belowRatio) / (aboveRatio - belowRatio);
      return belowLoss + step * (aboveLoss - belowLoss);
    }
    belowRatio = aboveRatio;
    belowLoss = aboveLoss;
  }
  return Infinity;
}

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
