"use strict";
// The run browser. Data: the JSON of ebpo/reporting/browser.py. Everything is drawn as SVG, text is set as text.
(() => {
  const data = JSON.parse(document.getElementById("browser-data").textContent);
  const selects = [document.getElementById("run-first"), document.getElementById("run-second")];
  const NS = "http" + "://www.w3.org/2000/svg";
  const W = 300, H = 170, L = 46, R = 8, T = 8, B = 24;

  function html(tag, text, name) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (name) element.className = name;
    return element;
  }
  function svg(tag, attributes, text) {
    const element = document.createElementNS(NS, tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }
  const show = (x) => Math.abs(x) >= 1e-3 || x === 0 ? String(+x.toPrecision(3)) : x.toExponential(1);

  function chart(title, lines) {
    const figure = html("figure", undefined, "chart");
    figure.append(html("figcaption", title));
    const xs = lines.flatMap((l) => l.points[0]), ys = lines.flatMap((l) => l.points[1]);
    const x0 = Math.min(...xs), x1 = Math.max(...xs), low = Math.min(...ys), high = Math.max(...ys);
    const pad = (high - low || Math.abs(high) || 1) * 0.06, y0 = low - pad, y1 = high + pad;
    const px = (x) => L + (W - L - R) * (x1 > x0 ? (x - x0) / (x1 - x0) : 0.5);
    const py = (y) => T + (H - T - B) * (1 - (y - y0) / (y1 - y0));
    const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title });
    for (const y of [low, (low + high) / 2, high]) {
      picture.append(svg("line", { x1: L, x2: W - R, y1: py(y), y2: py(y), class: "grid" }));
      picture.append(svg("text", { x: L - 5, y: py(y) + 3.5, "text-anchor": "end" }, show(y)));
    }
    for (const x of [x0, x1]) {
      picture.append(svg("text", { x: px(x), y: H - 8, "text-anchor": x === x0 ? "start" : "end" }, `step ${x}`));
    }
    for (const line of lines) {
      const path = line.points[0].map((x, i) => `${i ? "L" : "M"}${px(x).toFixed(1)},${py(line.points[1][i]).toFixed(1)}`);
      const look = { d: path.join(""), fill: "none", stroke: line.colour, "stroke-width": 1.8 };
      if (line.second) look["stroke-dasharray"] = "5 3";
      picture.append(svg("path", look));
      if (line.points[0].length === 1) {
        picture.append(svg("circle", { cx: px(x0), cy: py(line.points[1][0]), r: 3, fill: line.colour }));
      }
    }
    const marker = svg("line", { y1: T, y2: H - B, class: "marker", visibility: "hidden" });
    picture.append(marker);
    const reading = html("p", " ", "reading");
    const read = (event) => {
      const box = picture.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * W;
      const parts = lines.map((line) => {
        const nearest = line.points[0].reduce((a, x, i) => Math.abs(px(x) - at) < Math.abs(px(line.points[0][a]) - at) ? i : a, 0);
        return [line.points[0][nearest], line.points[1][nearest]];
      });
      marker.setAttribute("x1", px(parts[0][0]));
      marker.setAttribute("x2", px(parts[0][0]));
      marker.setAttribute("visibility", "visible");
      reading.textContent = parts.map(([x, y], i) => `${lines.length > 1 ? (lines[i].second ? "second, " : "first, ") : ""}step ${x}: ${show(y)}`).join("; ");
    };
    picture.addEventListener("pointermove", read);
    picture.addEventListener("pointerdown", read);
    picture.addEventListener("pointerleave", () => {
      marker.setAttribute("visibility", "hidden");
      reading.textContent = "\u00a0";
    });
    figure.append(picture, reading);
    return figure;
  }

  function example(row) {
    const item = html("details", undefined, `example ${row.verdict}`);
    const head = html("summary");
    head.append(html("strong", row.verdict === "correct" ? "\u2713 correct" : "\u2717 wrong"));
    head.append(` ${row.benchmark}: ${row.question.length > 90 ? row.question.slice(0, 90) + "\u2026" : row.question}`);
    item.append(head);
    const facts = { Question: row.question, Completion: (row.cut ? "\u2026" : "") + row.completion, "Answer read": row.extracted ?? "none", Gold: row.gold, Reason: row.reason, Tokens: `${row.tokens}, ended by ${row.finish_reason}` };
    const list = html("dl");
    for (const [key, value] of Object.entries(facts)) list.append(html("dt", key), html("dd", value));
    item.append(list);
    return item;
  }

  function draw() {
    const chosen = selects.map((s) => (s.value === "" ? null : data.runs[+s.value]));
    const charts = document.getElementById("browser-charts"), facts = document.getElementById("browser-facts");
    const examples = document.getElementById("browser-examples");
    for (const place of [charts, facts, examples]) place.replaceChildren();
    data.curves.forEach((title, i) => {
      const lines = [];
      chosen.forEach((run, j) => {
        if (run && run.curves[i]) lines.push({ points: run.curves[i], colour: run.colour, second: j === 1 });
      });
      if (lines.length) charts.append(chart(title, lines));
    });
    chosen.forEach((run, j) => {
      if (!run) return;
      const box = html("div");
      box.append(html("h4", `${j ? "Second, dashed: " : "First: "}${run.name}`));
      const list = html("dl");
      for (const [key, value] of Object.entries(run.facts)) list.append(html("dt", key), html("dd", value));
      box.append(list);
      facts.append(box);
      const column = html("div");
      column.append(html("h4", `Completions of the final policy: ${run.name}`));
      for (const row of run.examples) column.append(example(row));
      if (!run.examples.length) column.append(html("p", "None could be graded."));
      examples.append(column);
    });
  }

  selects.forEach((select, j) => {
    if (j) select.append(new Option("none", ""));
    data.runs.forEach((run, i) => select.append(new Option(run.name, String(i))));
    select.value = j ? "" : "0";
    select.addEventListener("change", draw);
  });
  draw();
})();
