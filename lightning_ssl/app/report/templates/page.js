"use strict";
// Sorts and filters the tables, and draws the figures with Plotly. Their data is the JSON in #data (figure_data.py).
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const groups = data.groups;
  const LEGEND = 24; // number of legend buttons; every group has a check box in the table
  const one = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));

  // Plotly interprets markup in text. Names from run folders are escaped.
  const escaped = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const shorten = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);

  // -- state that survives a reload (report --watch) ------------------------------------------------------------------
  const store = {
    get(key) { try { return JSON.parse(sessionStorage.getItem(location.pathname + key)); } catch { return null; } },
    set(key, value) { try { sessionStorage.setItem(location.pathname + key, JSON.stringify(value)); } catch { /* storage is disabled */ } },
  };
  const chosen = store.get("chosen") || {}; // title and data set → whether the reader shows the group
  const identity = (group) => JSON.stringify([group.title, group.data]);
  const passes = groups.map(() => true); // whether the group passes the filters

  // -- curves ---------------------------------------------------------------------------------------------------------
  function decode([low, high, code]) {
    const bytes = Uint8Array.from(atob(code), (c) => c.charCodeAt(0));
    const steps = new Uint16Array(bytes.buffer);
    const width = (high - low || 1) / 65534;
    return Array.from(steps, (s) => (s === 65535 ? null : low + s * width));
  }
  const curve = ([epochs, mean, spread]) => ({ x: data.epochs[epochs], y: decode(mean), spread: spread ? decode(spread) : null });

  // -- which groups are drawn -----------------------------------------------------------------------------------------
  function visible() {
    const drawn = {}; // number of groups drawn by default, by data set
    return groups.map((group, k) => {
      if (!passes[k]) return false;
      if (identity(group) in chosen) return chosen[identity(group)];
      drawn[group.data] = drawn[group.data] || 0;
      if (group.baseline && drawn[group.data] < 3 * data.drawn) return true;
      return drawn[group.data]++ < data.drawn;
    });
  }

  // -- style ----------------------------------------------------------------------------------------------------------
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // The default buttons include an upload, so the buttons are listed here.
  const config = { responsive: true, displaylogo: false, toImageButtonOptions: { format: "svg" },
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]] };
  function layout(more) {
    const ink = colour("--ink"), grid = colour("--grid");
    const axis = { gridcolor: grid, zeroline: false, linecolor: colour("--line"), automargin: true };
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink },
      margin: { l: 50, r: 12, t: 30, b: 42 }, hovermode: "closest",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: colour("--accent") },
      hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: ink }, namelength: -1 },
      ...more, xaxis: { ...axis, ...more.xaxis }, yaxis: { ...axis, ...more.yaxis },
    };
  }
  function translucent(hex, alpha) {
    const n = parseInt(hex.slice(1), 16);
    return `rgba(${n >> 16},${(n >> 8) & 255},${n & 255},${alpha})`;
  }

  // -- figures --------------------------------------------------------------------------------------------------------
  // Each data set has its own axes. Those of a data set without a visible group are hidden.
  function places(key, show) {
    return all(`[id^="plot-${key}-"]`).filter((place) => {
      const axes = place.closest(".axes"), set = Number(axes.dataset.set);
      axes.hidden = !groups.some((g, k) => show[k] && g.set === set) && groups.some((g, k) => show[k]);
      return !axes.hidden;
    }).map((place) => [place, Number(place.closest(".axes").dataset.set)]);
  }

  function drawFinal(place, set, show) {
    const drawn = groups.filter((g, k) => show[k] && g.set === set && g.mean !== null);
    const label = drawn.map((g) => escaped(shorten(g.title, 46)));
    const row = drawn.map((_, k) => k);
    const dots = { x: [], y: [], text: [], colour: [] };
    drawn.forEach((g, k) => g.seeds.forEach(([seed, value]) => {
      dots.x.push(value); dots.y.push(k + (g.seeds.length > 1 ? 0.16 : 0)); dots.colour.push(g.colour);
      dots.text.push(escaped(`${g.title}, seed ${seed}`));
    }));
    // The diamond of a group that cannot be the best is empty.
    const diamonds = (some) => ({ size: 11, symbol: "diamond", color: some.map((g) => g.outside ? colour("--card") : g.colour),
      line: { width: some.map((g) => g.outside ? 2 : 1.5), color: some.map((g) => g.outside ? g.colour : colour("--card")) } });
    const traces = [
      { x: dots.x, y: dots.y, text: dots.text, mode: "markers", hovertemplate: "%{text}: %{x:.2f} %<extra></extra>",
        marker: { size: 6, color: dots.colour, opacity: 0.75 } },
      { x: drawn.map((g) => g.mean), y: row, text: drawn.map((g) => escaped(g.title)), mode: "markers",
        hovertemplate: "%{text}<br><b>%{x:.2f} %</b><extra></extra>", marker: diamonds(drawn) }];
    const compared = drawn.map((g, k) => [g, k]).filter(([g]) => g.best);
    compared.forEach(([g, k]) => traces.push({ x: g.best.slice(1), y: [k, k], xaxis: "x2", mode: "lines", hoverinfo: "skip",
      line: { width: 9, color: translucent(g.colour, 0.38) } }));
    traces.push({ x: compared.map(([g]) => g.best[0]), y: compared.map(([, k]) => k), xaxis: "x2", mode: "markers",
      text: compared.map(([g]) => escaped(g.title)), customdata: compared.map(([g]) => g.best.slice(1).map((v) => v.toFixed(2)).join(" … ")),
      hovertemplate: "%{text}<br><b>%{x:+.2f}</b> to the best of the others, 95 %: %{customdata}<extra></extra>",
      marker: diamonds(compared.map(([g]) => g)) });
    const narrow = place.clientWidth < 560, both = compared.length > 1;
    const yaxis = { tickvals: row, ticktext: narrow ? row.map((k) => k + 1) : label, range: [drawn.length - 0.4, -0.6], showgrid: false };
    const grid = { gridcolor: colour("--grid"), linecolor: colour("--line"), automargin: true, zeroline: true, zerolinecolor: colour("--soft"), zerolinewidth: 1.5 };
    place.style.minHeight = place.style.height = `${Math.max(9, 5.5 + 2 * drawn.length)}rem`;
    Plotly.react(place, traces, layout({
      xaxis: { title: { text: narrow ? "accuracy (%)" : `final ${escaped(data.metric)} (%)` }, domain: both ? [0, 0.47] : [0, 1] }, yaxis,
      ...(both ? { xaxis2: { ...grid, title: { text: narrow ? "to the best" : "minus the best of the others (points)" }, domain: [0.53, 1], anchor: "y" } } : {}),
      annotations: narrow ? drawn.map((g, k) => ({ x: 0, xref: "paper", xanchor: "left", y: k - 0.36, text: label[k],
        showarrow: false, font: { size: 10, color: colour("--soft") } })) : [] }), config);
  }

  function drawPanel(figure, show) {
    places(figure.dataset.panel, show).forEach(([place, set]) => drawCurves(figure, place, set, show));
  }

  function drawCurves(figure, place, set, show) {
    const metric = one(".metric", figure).value;
    const each = one(".single", figure)?.checked, log = one(".log", figure)?.checked;
    const traces = [], front = [];
    groups.forEach((g, k) => {
      if (!show[k] || g.set !== set || !g.curves[metric]) return;
      const { x, y, spread } = curve(g.curves[metric]);
      if (each && g.runs[metric]) {
        g.runs[metric].forEach(([name, encoded]) => {
          const run = curve(encoded);
          traces.push({ x: run.x, y: run.y, mode: "lines", name: escaped(name), line: { color: translucent(g.colour, 0.45), width: 1 },
            hovertemplate: "%{fullData.name}<br>%{x}: %{y:.4~g}<extra></extra>" });
        });
      } else if (spread) {
        const up = y.map((v, n) => v + spread[n]), down = y.map((v, n) => v - spread[n]);
        traces.push({ x: x.concat(x.slice().reverse()), y: up.concat(down.reverse()), fill: "toself", mode: "lines",
          line: { width: 0 }, fillcolor: translucent(g.colour, 0.16), hoverinfo: "skip" });
      }
      const around = spread ? y.map((_, n) => ` ± ${Number(spread[n].toPrecision(3))}`) : y.map(() => "");
      front.push({ x, y, customdata: around, name: escaped(g.title), mode: x.length > 1 ? "lines" : "markers",
        line: { color: g.colour, dash: g.dash, width: 2.2 }, marker: { color: g.colour, size: 9 },
        hovertemplate: "<b>%{fullData.name}</b><br>epoch %{x}: %{y:.4~g}%{customdata}<extra></extra>" });
    });
    const type = log ? "log" : "linear";
    // Bands come first, so that no band covers a line.
    Plotly.react(place, [...traces, ...front], layout({ xaxis: { title: { text: "epochs trained" } },
      yaxis: { title: { text: escaped(data.names[metric]) }, type } }), config);
  }

  let parameterData = Object.keys(data.parameters)[0];
  let inView = false; // WebGL starts slowly without a graphics card, so it starts when the reader scrolls there
  function drawParameters() {
    if (!inView) return;
    const place = document.getElementById("plot-parameters");
    const found = data.parameters[parameterData];
    if (!found || found.axes.length < 2) {
      place.textContent = "The finished runs have no swept parameter.";
      place.style.minHeight = "4rem";
      return;
    }
    const last = found.axes.length - 1;
    const dimensions = found.axes.map((axis, k) => k === last
      ? { label: "accuracy (%)", values: found.accuracy }
      : { label: escaped(shorten(axis.title, 28)), values: found.values[k], range: [0, 1], tickvals: axis.ticks,
          ticktext: axis.texts.map((t) => escaped(shorten(t, 26))) });
    // Labels lie on the lines. Plotly's own shadow is grey, which blurs light text.
    const shadow = `0 0 3px ${colour("--card")}, 0 0 3px ${colour("--card")}`;
    const trace = { type: "parcoords", dimensions, labelfont: { size: 12, shadow: "none" }, tickfont: { size: 10, shadow },
      rangefont: { size: 10, color: "rgba(0,0,0,0)", shadow: "none" }, unselected: { line: { opacity: 0.06 } },
      line: { color: found.accuracy, colorscale: ["--low", "--mid", "--high"].map((name, k) => [k / 2, colour(name)]), showscale: true, colorbar: { thickness: 10, title: { text: "%" } } } };
    place.style.minHeight = "26rem";
    place.style.minWidth = `${Math.max(30, 11 * found.axes.length)}rem`;
    Plotly.react(place, [trace], layout({ margin: { l: 180, r: 30, t: 60, b: 24 } }), { ...config, modeBarButtons: [["toImage"]] });
  }

  function drawLegend(show) {
    const place = document.getElementById("legend");
    const passing = groups.map((g, k) => [g, k]).filter(([, k]) => passes[k]);
    const lines = new Map(); // title → its groups, one for each data set
    passing.forEach(([g, k]) => lines.set(g.title, [...(lines.get(g.title) || []), k]));
    const offered = [...lines.values()].filter((ks, n) => n < LEGEND || ks.some((k) => show[k]));
    const focus = document.activeElement?.dataset?.legend;
    place.replaceChildren(...offered.map((ks) => {
      const k = ks[0], g = groups[k], shown = ks.some((j) => show[j]);
      const button = document.createElement("button"), sample = document.createElement("i");
      button.type = "button";
      button.dataset.legend = k;
      button.setAttribute("aria-pressed", shown);
      sample.className = g.dash;
      sample.style.setProperty("--c", g.colour);
      button.append(sample, g.title);
      button.addEventListener("click", () => choose(ks, !shown));
      return button;
    }));
    if (focus !== undefined) one(`[data-legend="${focus}"]`, place)?.focus();
  }

  function choose(ks, shown) {
    ks.forEach((k) => { chosen[identity(groups[k])] = shown; });
    store.set("chosen", chosen);
    draw();
  }

  let waiting = 0;
  function draw() {
    const show = visible();
    all("#comparison input[data-group]").forEach((box) => { box.checked = show[box.dataset.group]; });
    drawLegend(show);
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => {
      places("final", show).forEach(([place, set]) => drawFinal(place, set, show));
      all("[data-panel]").forEach((figure) => drawPanel(figure, show));
    });
  }

  // -- tables ---------------------------------------------------------------------------------------------------------
  // Pairs of a row and its row of details, which stay together in every sort and filter.
  const lines = (body) => all("tr:not(.detail)", body).map((row) => [row, row.nextElementSibling?.matches(".detail") ? row.nextElementSibling : null]);

  function sortTable(table, column, direction) {
    const body = table.tBodies[0];
    const value = (row) => {
      const raw = row.cells[column].dataset.sort;
      return raw === undefined || raw === "" ? null : isNaN(raw) ? raw.toLowerCase() : Number(raw);
    };
    const sorted = lines(body).map((pair) => [pair, value(pair[0])]).sort(([, a], [, b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // missing values come last in both orders
      if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
      return direction * (typeof a === "number" ? a - b : a.localeCompare(b));
    });
    body.append(...sorted.flatMap(([pair]) => pair.filter(Boolean)));
    all("thead th", table).forEach((th, k) => {
      if (k === column) th.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else th.removeAttribute("aria-sort");
    });
    store.set("sort-" + table.id, [column, direction]);
  }

  function filterTable(table, words, selects, output, noun) {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0, total = 0;
    lines(table.tBodies[0]).forEach(([row, detail]) => {
      const text = row.textContent.toLowerCase();
      const keep = wanted.every((w) => text.includes(w)) && selects.every((s) => !s.value || row.dataset[s.dataset.filter] === s.value);
      row.hidden = !keep;
      if (detail) detail.hidden = !keep || one("button.open", row).getAttribute("aria-expanded") !== "true";
      if (row.dataset.group !== undefined) passes[row.dataset.group] = keep;
      total++; count += keep;
    });
    output.textContent = count === total ? `${total} ${noun}` : `${count} of ${total} ${noun}`;
  }

  function setUp(id, filter, matches, noun, after) {
    const table = document.getElementById(id), words = document.getElementById(filter), output = document.getElementById(matches);
    const selects = all("select[data-filter]", words.closest(".controls"));
    all("thead button", table).forEach((button) => button.addEventListener("click", () => {
      const th = button.closest("th"), now = th.getAttribute("aria-sort");
      const first = th.classList.contains("text") || button.textContent.trim() === "p" ? 1 : -1; // highest number first, but smallest p first
      sortTable(table, th.cellIndex, now === null ? first : now === "ascending" ? -1 : 1);
    }));
    const apply = () => {
      filterTable(table, words, selects, output, noun);
      store.set("filter-" + id, [words.value, ...selects.map((s) => s.value)]);
      after();
    };
    [words, ...selects].forEach((control) => control.addEventListener("input", apply));
    const [query, ...values] = store.get("filter-" + id) || [""];
    words.value = query;
    selects.forEach((s, k) => { s.value = values[k] ?? ""; if (s.selectedIndex < 0) s.value = ""; });
    const sorting = store.get("sort-" + id);
    if (sorting && sorting[0] < table.tHead.rows[0].cells.length) sortTable(table, ...sorting);
    filterTable(table, words, selects, output, noun);
  }

  document.getElementById("comparison").addEventListener("change", (event) => {
    const box = event.target.closest("input[data-group]");
    if (box) choose([Number(box.dataset.group)], box.checked);
  });
  document.getElementById("runs").addEventListener("click", (event) => {
    const button = event.target.closest("button.open");
    if (!button) return;
    const open = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", open);
    button.closest("tr").nextElementSibling.hidden = !open;
  });
  all("[data-panel] .controls").forEach((controls) => controls.addEventListener("input", () => drawPanel(controls.closest("figure"), visible())));

  // -- theme ----------------------------------------------------------------------------------------------------------
  const themes = ["auto", "light", "dark"], button = document.getElementById("theme");
  let theme = store.get("theme") || "auto";
  function paint() {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `theme: ${theme}`;
  }
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    store.set("theme", theme);
    paint(); draw(); drawParameters();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { draw(); drawParameters(); });

  // -- start ----------------------------------------------------------------------------------------------------------
  paint();
  const sets = Object.keys(data.parameters);
  if (sets.length > 1) {
    const choice = document.createElement("select");
    choice.append(...sets.map((name) => new Option(name, name)));
    choice.addEventListener("input", () => { parameterData = choice.value; drawParameters(); });
    const label = document.createElement("label");
    label.append("data set ", choice);
    document.getElementById("parameter-controls").append(label);
  }
  setUp("comparison", "filter", "matches", "groups", draw);
  setUp("runs", "run-filter", "run-matches", "runs", () => {});
  draw();
  const observer = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    inView = true;
    drawParameters();
  }, { rootMargin: "100px" });
  observer.observe(document.getElementById("plot-parameters"));
  if (data.refresh) {
    setInterval(() => { // no reload while the reader types or has opened a run
      if (!document.activeElement?.matches("input, select") && !one('[aria-expanded="true"]')) location.reload();
    }, 1000 * data.refresh);
  }
})();
