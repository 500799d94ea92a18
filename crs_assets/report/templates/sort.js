for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const order = heading.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const key = (row) => row.cells[column].dataset.sort;
      for (const body of table.tBodies) {
        const rows = [...body.rows].filter((row) => !row.classList.contains("section"));
        rows.sort((one, other) => {
          const a = key(one), b = key(other);
          // Rows without a value stay last in either order.
          if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
          const difference = heading.classList.contains("n") ? a - b : a.localeCompare(b);
          return sign * difference;
        });
        body.append(...rows);
      }
    });
  });
}
