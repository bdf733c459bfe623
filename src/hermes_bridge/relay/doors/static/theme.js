// Sets the chosen theme before the first paint; loaded in the head, not as a module.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("hermes-bridge.theme"); } catch { /* storage is off */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
