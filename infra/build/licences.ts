import type { Bundled, BundledPackage } from "./packages.ts";

const LINE = "=".repeat(100);

/**
 * The text of THIRD-PARTY-LICENSES.txt: each licence once, under the packages that come with it, then those that come
 * without a text, then the comments that bundled files ask to be kept.
 * @param legalComments what esbuild wrote into its `*.LEGAL.txt` files
 */
export function licencesText({ packages }: Bundled, legalComments: string[]): string {
  const byText = new Map<string, BundledPackage[]>();
  for (const each of packages.values()) {
    const text = each.licenseTexts.join("\n\n");
    byText.set(text, [...(byText.get(text) ?? []), each]);
  }
  const without = byText.get("") ?? [];
  byText.delete("");
  const sections = [...byText].map(([text, each]) => `${each.map(titleOf).join("\n")}\n\n${text}`);
  if (without.length > 0) {
    const lines = without.map((each) => `${titleOf(each)}${each.origin && `, ${each.origin}`}`);
    sections.push(`These come without the text of the licence that they declare:\n\n${lines.join("\n")}`);
  }
  const comments = new Set(
    legalComments.flatMap((text) =>
      text
        .trim()
        .split(/\n\n(?=\S)/)
        .slice(1),
    ),
  );
  sections.push(`Comments of bundled files, by file:\n\n${[...comments].sort().join("\n\n")}`);
  return `What this release holds of others, and under which licences.\n\n${sections.map((each) => `${LINE}\n${each}\n`).join("\n")}`;
}

const titleOf = ({ name, version, license }: BundledPackage): string => `${name} ${version} (${license})`;
