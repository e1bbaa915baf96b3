import type { Section } from "./section.ts";

/** A section in BENCHMARKS.md, between two comments with its name. */
export function render(name: string, { title, how, figures }: Section): string {
  const rows = [
    ["what", "figure", "compared with", "bound"],
    ...figures.map(({ what, value, comparedWith, bound }) => {
      const held = bound ? `${bound.text}${bound.holds ? "" : " **EXCEEDED**"}` : "";
      return [what, value, comparedWith, held];
    }),
  ];
  const line = (row: string[]) => `| ${row.join(" | ")} |`;
  const [head, ...body] = rows.map(line);
  const rule = line(rows[0]!.map(() => "---"));
  return [`<!-- ${name} -->`, `## ${title}`, "", how, "", head, rule, ...body, `<!-- /${name} -->`].join("\n");
}

/** Returns the page with the sections that were measured now. All other sections keep their text. */
export function mergedPage(before: string, intro: string, names: string[], texts: Map<string, string>): string {
  const parts = names.flatMap((name) => texts.get(name) ?? sectionIn(before, name) ?? []);
  return `${[intro, ...parts].join("\n\n")}\n`;
}

/** Returns the exceeded bounds of a section, and whether its table in `page` lists other figures or bounds. */
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

/** Returns the texts and bounds of a section's table, without the measured figures. */
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
