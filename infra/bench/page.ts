/**
 * Reads and writes BENCHMARKS.md, the page with the table of each benchmark. A section is the part of one benchmark, between
 * the comments `<!-- name -->` and `<!-- /name -->`.
 */
import type { Section } from "./section.ts";

/** Returns the Markdown of a section, including both comments. */
export function render(name: string, { title, how, figures }: Section): string {
  const rows = [
    ["what", "figure", "compared with", "bound"],
    ...figures.map(({ what, value, comparedWith, bound }) => {
      const boundText = bound ? `${bound.text}${bound.holds ? "" : " **EXCEEDED**"}` : "";
      return [what, value, comparedWith, boundText];
    }),
  ];
  const line = (row: string[]) => `| ${row.join(" | ")} |`;
  const [heading, ...body] = rows.map(line);
  const separator = line(rows[0]!.map(() => "---"));
  return [`<!-- ${name} -->`, `## ${title}`, "", how, "", heading, separator, ...body, `<!-- /${name} -->`].join("\n");
}

/**
 * Returns the page with the new texts of the sections that were measured. All other sections keep their text from `oldPage`.
 *
 * @param names - Names of all sections, in the order of the page.
 * @param newTexts - Rendered sections by name.
 */
export function mergedPage(oldPage: string, intro: string, names: string[], newTexts: Map<string, string>): string {
  const sections = names.flatMap((name) => newTexts.get(name) ?? sectionIn(oldPage, name) ?? []);
  return `${[intro, ...sections].join("\n\n")}\n`;
}

/**
 * Returns a message for each exceeded bound of a section and if the section has no bound. If `page` is given, also returns a
 * message if the section's table in the page lists other figures or bounds.
 */
export function problemsOf(name: string, section: Section, page?: string): string[] {
  const problems = section.figures
    .filter(({ bound }) => bound && !bound.holds)
    .map(({ what, value, bound }) => `${name}: ${what} is ${value}, the bound is ${bound!.text}`);
  if (!section.figures.some(({ bound }) => bound)) problems.push(`${name} has no bound`);
  if (page !== undefined) {
    const expectedRows = section.figures.map(({ what, bound }) => `${what} | ${bound?.text ?? ""}`);
    const rowsInPage = rowsOf(sectionIn(page, name) ?? "");
    if (expectedRows.join("\n") !== rowsInPage.join("\n"))
      problems.push(`${name}: BENCHMARKS.md has other figures or bounds; npm run bench -- ${name} writes it again`);
  }
  return problems;
}

const sectionIn = (page: string, name: string): string | undefined =>
  new RegExp(`<!-- ${name} -->[\\s\\S]*<!-- /${name} -->`).exec(page)?.[0];

/** Returns the first and the last column of a section's table: what is measured, and its bound. */
function rowsOf(text: string): string[] {
  const rows = text.split("\n").filter((line) => line.startsWith("| "));
  return rows.slice(2).map((row) => {
    const cells = row
      .slice(2, -2)
      .split(" | ")
      .map((cell) => cell.trim());
    return `${cells[0]} | ${cells[3]!.replace(" **EXCEEDED**", "")}`;
  });
}
