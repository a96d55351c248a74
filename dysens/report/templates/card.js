// Two switches; everything else stands in the page.
const root = document.documentElement;

function setLanguage(language) {
  root.dataset.language = language;
  root.lang = language === "zh" ? "zh-CN" : "en";
}

function setTheme(dark) {
  root.dataset.theme = dark ? "dark" : "light";
}

setLanguage(navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
document.getElementById("language").addEventListener("click", () => setLanguage(root.dataset.language === "en" ? "zh" : "en"));
document.getElementById("theme").addEventListener("click", () => setTheme(root.dataset.theme !== "dark"));
