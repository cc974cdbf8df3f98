"use strict";
// Every chart works without this: a read-out under the pointer or the arrow keys, and series
// that can be hidden. All words come from the page's own data.
for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const readout = figure.querySelector(".readout");
  const hidden = new Set();
  let at = -1;

  const show = (index) => {
    at = Math.max(0, Math.min(index, data.x.length - 1));
    const words = data.series
      .filter((series, number) => !hidden.has(number) && series.y[at] !== null)
      .map((series) => `${series.name} ${series.y[at]}`);
    readout.textContent = `${data.x[at]}: ${words.join(" · ") || "no value"}`;
    for (const svg of figure.querySelectorAll("svg[data-width]")) {
      const place = data.places[svg.dataset.width];
      let line = svg.querySelector(".cursor");
      if (!line) {
        line = document.createElementNS("http://www.w3.org/2000/svg", "line");
        line.setAttribute("class", "cursor");
        svg.append(line);
      }
      const x = place.x[at];
      for (const [name, value] of [["x1", x], ["x2", x], ["y1", place.top], ["y2", place.bottom]]) {
        line.setAttribute(name, value);
      }
    }
  };

  const clear = () => {
    at = -1;
    readout.textContent = readout.dataset.hint;
    for (const line of figure.querySelectorAll(".cursor")) line.remove();
  };

  for (const svg of figure.querySelectorAll("svg[data-width]")) {
    if (!data.x.length) continue;
    svg.tabIndex = 0;
    const xs = data.places[svg.dataset.width].x;
    const nearest = (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) * svg.viewBox.baseVal.width) / box.width;
      let best = 0;
      xs.forEach((value, index) => {
        if (Math.abs(value - x) < Math.abs(xs[best] - x)) best = index;
      });
      show(best);
    };
    svg.addEventListener("pointermove", nearest);
    svg.addEventListener("pointerdown", nearest);
    svg.addEventListener("pointerleave", clear);
    svg.addEventListener("blur", clear);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      show(at < 0 ? (step < 0 && step > -Infinity ? data.x.length - 1 : step > 1 ? step : 0) : at + step);
    });
  }

  for (const button of figure.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const number = Number(button.dataset.series);
      const shown = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!shown));
      if (shown) hidden.add(number); else hidden.delete(number);
      for (const group of figure.querySelectorAll(`g[data-series="${number}"]`)) {
        group.classList.toggle("hidden", shown);
      }
      if (at >= 0) show(at);
    });
  }
}
