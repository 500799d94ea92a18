const foldAll = document.getElementById("fold-all");
foldAll.hidden = false;
foldAll.addEventListener("click", () => {
  const folds = [...document.querySelectorAll("details")];
  const opens = folds.some((fold) => !fold.open);
  folds.forEach((fold) => { fold.open = opens; });
  foldAll.textContent = opens ? "Close all folded parts" : "Open all folded parts";
});
// A link into a folded part opens it.
addEventListener("hashchange", () => {
  const target = document.getElementById(location.hash.slice(1));
  for (let fold = target?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
});
