// Draws every plot from the data beside it and keeps its colours in step with the page's.
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const plots = [...document.querySelectorAll(".plot")];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const layoutColours = () => {
    const changes = { "font.color": colour("--ink"), "hoverlabel.bgcolor": colour("--card") };
    for (const axis of ["xaxis", "yaxis"]) {
      changes[`${axis}.gridcolor`] = colour("--grid");
      changes[`${axis}.linecolor`] = changes[`${axis}.tickcolor`] = colour("--soft");
    }
    return changes;
  };

  // On a dark page the greys of theory and floors are inverted and the other colours a third lighter.
  const channels = (hex, change) =>
    "#" + [1, 3, 5].map((i) => Math.round(change(parseInt(hex.slice(i, i + 2), 16))).toString(16).padStart(2, "0")).join("");
  const shown = ({ meta, colour }) => {
    if (!dark.matches) return colour;
    return channels(colour, ["theory", "floor"].includes(meta) ? (c) => 255 - c : (c) => c + (255 - c) / 3);
  };

  const paint = (plot) => {
    const colours = plot.lines.map(shown);
    const lines = plot.lines.map(({ index }) => index);
    return Plotly.update(plot, { "line.color": colours, "marker.color": colours }, layoutColours(), lines);
  };

  const draw = async (plot) => {
    const { data, layout } = JSON.parse(plot.querySelector("script").textContent);
    // Bands have no colour of their own line; everything else is repainted with the page.
    plot.lines = data.map(({ meta, line }, index) => ({ meta, colour: line.color, index })).filter(({ colour }) => colour);
    plot.replaceChildren();
    layout.font.family = getComputedStyle(document.body).fontFamily;
    // A finger that moves over a plot scrolls the page; a mouse zooms, and a double click zooms out.
    layout.dragmode = window.matchMedia("(pointer: coarse)").matches ? false : "zoom";
    await Plotly.newPlot(plot, data, layout, { responsive: true, displayModeBar: false });
    await paint(plot);
  };

  Promise.all(plots.map(draw)).then(() => document.documentElement.setAttribute("data-drawn", plots.length));
  dark.addEventListener("change", () => plots.forEach(paint));
})();
