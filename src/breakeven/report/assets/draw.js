"use strict";
// Draws every picture in the colours of the page, and again when the page turns narrow, dark, light or to paper.
(() => {
  const UNDER_AXIS = 48, PAPER_WIDTH = 325, SCREEN_WIDTH = 600;
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const places = () => document.querySelectorAll("[data-plot]");

  const layoutOf = (figure, width, legendHeight) => {
    const ink = variable("--ink"), rule = variable("--rule"), narrow = width < 520;
    // A fixed range lets a finger scroll the page instead of zooming into the picture.
    const axis = { gridcolor: rule, linecolor: rule, zerolinecolor: rule, fixedrange: true };
    const plotHeight = width === PAPER_WIDTH ? 220 : 290, bottom = UNDER_AXIS + legendHeight;
    return {
      ...figure.layout,
      xaxis: { ...axis, ...figure.layout.xaxis, title: { standoff: 4, ...figure.layout.xaxis.title } },
      yaxis: { ...axis, ...figure.layout.yaxis },
      width, height: plotHeight + 10 + bottom, margin: { l: 46, r: 12, t: 10, b: bottom, autoexpand: false },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, family: "system-ui, sans-serif", size: narrow ? 11 : 13 },
      showlegend: true,
      legend: {
        orientation: "h", xref: "container", x: 0, xanchor: "left", y: -UNDER_AXIS / plotHeight, yanchor: "top",
        maxheight: 4000, font: { size: narrow ? 11 : 12 },
      },
      hovermode: narrow ? "closest" : "x unified", dragmode: false,
      hoverlabel: { bgcolor: variable("--paper"), bordercolor: rule, font: { color: ink } },
    };
  };

  const drawOne = (place, width) => {
    const figure = FIGURES[place.dataset.plot];
    const render = (legendHeight) =>
      Plotly.react(place, structuredClone(figure.data), layoutOf(structuredClone(figure), width, legendHeight), { displayModeBar: false });
    render(Math.ceil(figure.data.length / 2) * 20);
    // How many rows a legend takes is known only once it is drawn.
    const legend = place.querySelector(".legend");
    render(legend ? Math.ceil(legend.getBBox().height) + 6 : 0);
    place.dataset.drawn = "yes";
  };
  const draw = (width) => places().forEach((place) => drawOne(place, width || place.clientWidth || SCREEN_WIDTH));

  draw();
  let timer;
  addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(draw, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
  // Colours are read before the browser turns to paper, so a dark page must turn light by itself first.
  addEventListener("beforeprint", () => { document.documentElement.dataset.paper = "yes"; draw(PAPER_WIDTH); });
  addEventListener("afterprint", () => { delete document.documentElement.dataset.paper; draw(); });
  document.querySelectorAll("button[data-view]").forEach((button) => button.addEventListener("click", () => {
    const figure = button.closest("figure");
    figure.querySelectorAll("button[data-view]").forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
    const place = figure.querySelector("[data-plot]");
    place.dataset.plot = button.dataset.view;
    drawOne(place, place.clientWidth);
  }));
})();
