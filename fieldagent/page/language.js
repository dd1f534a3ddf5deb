// Translates the page's texts. The English text is the key of its translation. A text without a
// translation stays English, and so do all texts if no catalogue loads.

/** The language code and the language's own name. */
export const LANGUAGES = {
  de: "Deutsch", en: "English", es: "Español", fr: "Français", uk: "Українська",
};
const RIGHT_TO_LEFT = ["ar", "ckb", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"];
/** Milliseconds to wait for a catalogue. */
const PATIENCE = 15_000;
const READ = ["aria-label", "alt", "placeholder", "title"];

/** The value that this browser stores under that name, or null if it stores none. */
export function kept(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

export function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // The page asks for the value again at the next visit.
  }
}

/** The chosen language, or the first of the browser's languages that has a translation. */
export const language = [kept("language"), ...navigator.languages]
  .map(each => String(each).split("-")[0]).find(each => Object.hasOwn(LANGUAGES, each)) ?? "en";

/** `texts` of the page, `terms` of the API, `words` that are sent as numbers (docs/reference/on-air.md). */
let catalogue = { texts: {}, terms: {}, words: {} };
let plural = new Intl.PluralRules("en");
let decimal = decimals("en");
let english = new Map();

/** The form of numbers in a language: "0.5" or "0,5". */
function decimals(code) {
  return new Intl.NumberFormat(code, { useGrouping: false, maximumFractionDigits: 6 });
}

/** A text can equal the name of a member that every object has, such as "constructor". */
const known = (texts, text) => Object.hasOwn(texts, text) ? texts[text] : text;

const filled = (text, values) => text.replace(/\{(\w+)\}/g, (place, name) => values[name] ?? place);

/** A text of the page, with `values` in its places such as {name}. */
export const say = (text, values = {}) => filled(catalogue.texts[text] ?? text, values);

/** Returns a text of the page about `n` things, in the plural form of the language. */
export function counted(n, one, other, values = {}) {
  const text = catalogue.texts[other]?.[plural.select(n)] ?? (n === 1 ? one : other);
  return filled(text, { n: decimal.format(n), ...values });
}

/** Returns a state, kind or channel of the API in the page's language. An unknown one stays as it is. */
export const term = name => known(catalogue.terms, name);

/** Returns a canned text in the page's language. Any other text stays as it is. */
export const worded = text => known(catalogue.words, text);

/** Returns the English form of a canned text, which is sent. Any other text stays as it is. */
export const unworded = text => english.get(text) ?? text;

/** Returns each text of the HTML page with a function that replaces it. */
function standing() {
  const found = [];
  const all = document.createTreeWalker(document.body, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  while (all.nextNode()) {
    const node = all.currentNode;
    if (node instanceof Text) {
      const text = node.data, core = text.trim();
      if (core) found.push([core.replace(/\s+/g, " "), said => {
        // A script may have changed the text since then.
        if (node.data === text) node.data = text.replace(core, () => said);
      }]);
    } else
      for (const name of READ)
        if (node.hasAttribute(name)) found.push([node.getAttribute(name), said => node.setAttribute(name, said)]);
  }
  return found;
}

async function load() {
  if (language === "en") return;
  const texts = standing();
  try {
    const answer = await fetch(new URL(`${language}.json`, import.meta.url), { signal: AbortSignal.timeout(PATIENCE) });
    if (!answer.ok) return;
    catalogue = await answer.json();
  } catch {
    return;
  }
  plural = new Intl.PluralRules(language);
  decimal = decimals(language);
  english = new Map(Object.entries(catalogue.words).map(([text, said]) => [said, text]));
  document.documentElement.lang = language;
  document.documentElement.dir = RIGHT_TO_LEFT.includes(language) ? "rtl" : "ltr";
  for (const [text, put] of texts) if (Object.hasOwn(catalogue.texts, text)) put(say(text));
}

/** Resolves when the catalogue is loaded, or cannot be loaded. */
export const spoken = load();

const HAS_REASON = /"(?:reason|detail|fault|notOnDisk|\w*[tT]rouble|settings|lastUpdate)":\s*"[^"]|"(?:notices|losses|faults)":\s*\[["{]/;
/** Milliseconds to wait for the translations of reasons. */
const WAITS = 4_000;
let reasons;

/** Parses a document of the API. Translates its reasons if their translations are loaded. */
export const parsed = text => JSON.parse(text, reasons?.retold);

/** Returns the translation of a reason, or the reason if its translation is not loaded. */
export const because = text => reasons?.because(text) ?? text;

/** Parses a document of the API and translates its reasons. They stay English if their translations
 * do not load. */
export async function read(text) {
  if (language !== "en" && !reasons && HAS_REASON.test(text)) {
    const words = import("./reasons.js").then(all => reasons = all, () => {});
    await Promise.race([words, new Promise(resolve => setTimeout(resolve, WAITS))]);
  }
  return parsed(text);
}
