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
let english = new Map();

/** A text can equal the name of a member that every object has, such as "constructor". */
const known = (texts, text) => Object.hasOwn(texts, text) ? texts[text] : text;

const filled = (text, values) => text.replace(/\{(\w+)\}/g, (place, name) => values[name] ?? place);

/** A text of the page, with `values` in its places such as {name}. */
export const say = (text, values = {}) => filled(catalogue.texts[text] ?? text, values);

/** The same of a number of things, which stands at {n}: the form that the language has for it. */
export function counted(n, one, other, values = {}) {
  const text = catalogue.texts[other]?.[plural.select(n)] ?? (n === 1 ? one : other);
  return filled(text, { n, ...values });
}

/** A state, kind or channel of the API; one that is not known is said as it came. */
export const term = name => known(catalogue.terms, name);

/** Canned words, which every kit says in the language of who reads them; any other text as it is. */
export const worded = text => known(catalogue.words, text);

/** What travels of them, whoever typed or chose them. */
export const unworded = text => english.get(text) ?? text;

/** Texts that stand in the page from its beginning, each with what puts another in its place. */
function standing() {
  const found = [];
  const all = document.createTreeWalker(document.body, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  while (all.nextNode()) {
    const node = all.currentNode;
    if (node instanceof Text) {
      const text = node.data, core = text.trim();
      if (core) found.push([core.replace(/\s+/g, " "), said => {
        // What a script has said there since is newer.
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
  english = new Map(Object.entries(catalogue.words).map(([text, said]) => [said, text]));
  document.documentElement.lang = language;
  document.documentElement.dir = RIGHT_TO_LEFT.includes(language) ? "rtl" : "ltr";
  for (const [text, put] of texts) if (Object.hasOwn(catalogue.texts, text)) put(say(text));
}

/** Done once the language is there, or is not to be had. */
export const spoken = load();

const HAS_REASON = /"(?:reason|detail|fault|notOnDisk|\w*[tT]rouble|settings|lastUpdate)":\s*"[^"]|"(?:notices|losses|faults)":\s*\[["{]/;
/** Milliseconds that a document waits for the words of its reasons. */
const WAITS = 4_000;
let reasons;

/** A document of the API as it is known by now: see `read`. */
export const parsed = text => JSON.parse(text, reasons?.retold);

/** A reason that stands in a document as it came, as the page looks into it. */
export const because = text => reasons?.because(text) ?? text;

/** A document of the API, with each reason in it said in the language of who reads: in English where
 * its words do not come. */
export async function read(text) {
  if (language !== "en" && !reasons && HAS_REASON.test(text)) {
    const words = import("./reasons.js").then(all => reasons = all, () => {});
    await Promise.race([words, new Promise(resolve => setTimeout(resolve, WAITS))]);
  }
  return parsed(text);
}
