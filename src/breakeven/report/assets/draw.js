"use strict";
// Draws every figure in the colours of the page, and again when the page turns dark, light or to paper.
(() => {
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plots = () => document.querySelectorAll("[data-plot]");
  const themed = (layout, width) => {
    const ink = variable("--ink"), grid = variable("--rule"), narrow = width < 520;
    const axis = { gridcolor: grid, linecolor: grid, zerolinecolor: grid, automargin: true };
    return {
      ...layout,
      xaxis: { ...axis, ...layout.xaxis },
      yaxis: { ...axis, ...layout.yaxis },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, family: "system-ui, sans-serif", size: narrow ? 11 : 13 },
      margin: { l: 10, r: 24, t: 10, b: 10 },
      legend: { orientation: "h", y: -0.22, yanchor: "top", x: 0 },
      hovermode: "x unified", hoverlabel: { bgcolor: variable("--paper"), font: { color: ink } },
      width, height: narrow ? 380 : 420,
    };
  };
  const draw = (width) => {
    for (const place of plots()) {
      const figure = FIGURES[place.dataset.plot];
      const wide = width || place.clientWidth || 600;
      Plotly.react(place, structuredClone(figure.data), themed(structuredClone(figure.layout), wide), { displayModeBar: false });
      place.dataset.drawn = "yes";
    }
  };
  draw();
  let timer;
  window.addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(draw, 150); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
  window.addEventListener("beforeprint", () => draw(660));
  window.addEventListener("afterprint", () => draw());
})();
