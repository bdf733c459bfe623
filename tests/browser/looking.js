// What can be measured of the page as it stands. An object of functions: `looking.py` calls them.
({
  /** What is wider than its room. */
  wide() {
    const root = document.documentElement, out = [];
    // A phone zooms out to show what is too wide: its window grows, its screen does not.
    const room = Math.min(innerWidth, screen.width);
    if (root.scrollWidth > room) out.push(`the page: ${root.scrollWidth - room} px`);
    for (const el of document.querySelectorAll(".panel, .bar > div, .sum, .head, dialog[open], .menu:popover-open")) {
      if (!el.checkVisibility() || getComputedStyle(el).overflowX === "hidden") continue;
      const more = el.scrollWidth - el.clientWidth;
      if (more > 1) out.push(`${el.className}: ${more} px`);
    }
    return out;
  },

  /** Texts below WCAG AA on the ground that shows through behind them. */
  contrast() {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 1;
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    const known = new Map();
    const rgba = (color) => {
      if (!known.has(color)) {
        pen.clearRect(0, 0, 1, 1);
        pen.fillStyle = color;
        pen.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
        known.set(color, [r, g, b, a / 255]);
      }
      return known.get(color);
    };
    const over = ([r, g, b, a], under) => [...[r, g, b].map((v, i) => v * a + under[i] * (1 - a)), 1];
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
    const ratio = (a, b) => {
      const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
      return (x + 0.05) / (y + 0.05);
    };
    const up = function* (el) { for (let at = el; at; at = at.parentElement) yield at; };
    const ground = (el) => {
      const layers = [];
      for (const at of up(el)) {
        layers.push(rgba(getComputedStyle(at).backgroundColor));
        if (layers.at(-1)[3] === 1) break;
      }
      return layers.reduceRight((under, layer) => over(layer, under), [255, 255, 255, 1]);
    };
    const faded = (el) => [...up(el)].some((at) => Number(getComputedStyle(at).opacity) < 1);
    const low = new Map();
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    let seen = 0;
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      const el = node.parentElement;
      if (!node.data.trim() || !el.checkVisibility() || faded(el)) continue;
      if (el.closest(".sr, :disabled, .faint, noscript, title")) continue;
      seen += 1;
      const style = getComputedStyle(el), behind = ground(el);
      const found = ratio(over(rgba(el.closest("svg") ? style.fill : style.color), behind), behind);
      const size = parseFloat(style.fontSize);
      const big = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
      const name = `${el.tagName}.${el.getAttribute("class") ?? ""} in ${el.parentElement.getAttribute("class")}`;
      if (found < (big ? 3 : 4.5)) low.set(name, Number(found.toFixed(2)));
    }
    return { seen, low: [...low] };
  },

  /** What a finger can hit on less than 44 px of height, and on how many. */
  small() {
    const out = [];
    for (const el of document.querySelectorAll("a[href], button, input, summary, [tabindex='0']")) {
      const box = el.getBoundingClientRect();
      const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
      if (!box.width || el.disabled || el.closest(".sr") || !el.checkVisibility({ opacityProperty: true })) continue;
      // What another part of the page covers, or the window's edge cuts, cannot be judged here.
      if (!el.contains(document.elementFromPoint(x, y))) continue;
      if (!el.closest(".bar") && (y < 80 || y > innerHeight - 80)) continue;
      const own = (at) => {
        const hit = document.elementFromPoint(x, at);
        return hit && (el.contains(hit) || (hit.contains(el) && hit.closest("label")));
      };
      let above = 0, below = 0;
      while (above < 22 && own(y - above - 1)) above += 1;
      while (below < 22 && own(y + below + 1)) below += 1;
      const name = `${el.tagName}.${el.getAttribute("class") ?? ""} ${el.textContent.trim().slice(0, 24)}`;
      if (above + below < 43) out.push([name, above + below + 1]);
    }
    return out;
  },

  /** Moves without the reader's doing: score, when in ms, what moved from where to where. */
  shifts() {
    const place = (box) => `${Math.round(box.x)},${Math.round(box.y)}`;
    const what = ({ node, previousRect, currentRect }) =>
      `${node?.nodeName}.${node?.className?.baseVal ?? node?.className} ${place(previousRect)} to ${place(currentRect)}`;
    return new Promise((done) => {
      const moves = [];
      const watch = new PerformanceObserver((list) => moves.push(...list.getEntries()));
      watch.observe({ type: "layout-shift", buffered: true });
      setTimeout(() => {
        watch.disconnect();
        const own = moves.filter((move) => !move.hadRecentInput);
        done(own.map((move) => [Number(move.value.toFixed(4)), Math.round(move.startTime), move.sources.map(what)]));
      }, 50);
    });
  },
})
