// Runs before the first paint, so that a chosen theme does not flash in the other colours.
try {
  const theme = localStorage.getItem('hopwise-theme');
  if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
} catch {
  // Storage is disabled: the system's theme is used.
}
