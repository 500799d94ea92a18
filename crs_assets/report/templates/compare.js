const source = document.getElementById("comparison-data");
if (source) {
  const data = JSON.parse(source.textContent);
  const form = document.getElementById("comparison");
  const target = document.getElementById("comparison-table");
  const text = (value, signed) => {
    if (value === null || value === undefined) return "\u2013";
    const shown = Math.abs(value).toFixed(3);
    const sign = Number(shown) === 0 ? "" : value < 0 ? "\u2212" : signed ? "+" : "";
    return sign + shown;
  };
  const element = (name, content, attributes = {}) => {
    const made = document.createElement(name);
    made.append(...[content].flat());
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  // A pair is stored once: turned round, its difference changes sign and its ends change places.
  const difference = (place, one, other, quantity) => {
    const pairs = data.differences[place];
    const straight = pairs[`${one},${other}`]?.[quantity];
    if (straight) return straight;
    const turned = pairs[`${other},${one}`]?.[quantity];
    const minus = (value) => (value === null ? null : -value);
    return turned ? [minus(turned[0]), minus(turned[2]), minus(turned[1])] : [null, null, null];
  };
  const verdict = (low, high, better, value) => {
    if (low === null || high === null) return ["", ""];
    // Neither where the interval holds 0, nor where it lies on the other side of 0 than the difference.
    if ((low <= 0 && high >= 0) || value * (low + high) <= 0) return ["not told apart", ""];
    return (value > 0) === (better > 0) ? ["first is better", "gain"] : ["second is better", "loss"];
  };
  const row = (place, one, other, quantity) => {
    const [label, better] = data.quantities[quantity];
    const [value, low, high] = difference(place, one, other, quantity);
    const [words, look] = verdict(low, high, better, value);
    const values = data.values[place];
    const interval = low === null ? "\u2013" : `[${text(low, true)}, ${text(high, true)}]`;
    return element("tr", [
      element("th", `${label} (${better > 0 ? "higher" : "lower"} is better)`, { scope: "row" }),
      element("td", text(values[one]?.[quantity]), { class: "n" }),
      element("td", text(values[other]?.[quantity]), { class: "n" }),
      element("td", text(value, true), { class: "n" }),
      element("td", interval, { class: "n" }),
      element("td", words, { class: look }),
    ]);
  };
  const head = (one, other) => element("thead", element("tr", [
    element("th", "", { scope: "col" }),
    element("th", data.encoders[one][0], { scope: "col", class: "n" }),
    element("th", data.encoders[other][0], { scope: "col", class: "n" }),
    element("th", "Difference", { scope: "col", class: "n" }),
    element("th", "Paired interval", { scope: "col", class: "n" }),
    element("th", "", { scope: "col" }),
  ]));
  const show = () => {
    const one = form.elements.one.value, other = form.elements.other.value;
    const bodies = data.places.map((title, place) => element("tbody", [
      element("tr", element("th", element("span", title), { scope: "rowgroup", colspan: "6" }), { class: "section" }),
      ...data.quantities.map((_, quantity) => row(place, one, other, quantity)),
    ]));
    const caption = element("caption", element("span", `${data.encoders[one][0]} minus ${data.encoders[other][0]}, patients and seeds resampled together`));
    target.replaceChildren(element("table", [caption, head(one, other), ...bodies]));
  };
  for (const [position, name] of ["one", "other"].entries()) {
    const select = form.elements[name];
    select.append(...data.encoders.map(([id, title], value) => element("option", `${title}: ${id}`, { value })));
    select.value = data.first[position] ?? position;
    select.addEventListener("change", show);
  }
  form.hidden = false;
  show();
}
