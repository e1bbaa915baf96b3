// Creates THIRD-PARTY-LICENSES.txt of a release.

import type { Bundled, BundledPackage } from "./packages.ts";

const SEPARATOR = "=".repeat(100);

/**
 * Returns the text of THIRD-PARTY-LICENSES.txt: each license once, below the packages that use it, then the packages without a
 * license text, then the legal comments of bundled files.
 * @param legalComments contents of esbuild's `*.LEGAL.txt` files
 */
export function licencesText({ packages }: Bundled, legalComments: string[]): string {
  const byText = new Map<string, BundledPackage[]>();
  for (const each of packages.values()) {
    const text = each.licenseTexts.join("\n\n");
    byText.set(text, [...(byText.get(text) ?? []), each]);
  }
  const withoutText = byText.get("") ?? [];
  byText.delete("");
  const sections = [...byText].map(([text, each]) => `${each.map(titleOf).join("\n")}\n\n${text}`);
  if (withoutText.length > 0) {
    const lines = withoutText.map((each) => `${titleOf(each)}${each.origin && `, ${each.origin}`}`);
    sections.push(`These packages declare a license but do not contain its text:\n\n${lines.join("\n")}`);
  }
  // A *.LEGAL.txt file is a heading, then one paragraph for each bundled file, whose further lines are indented.
  const comments = new Set(
    legalComments.flatMap((text) =>
      text
        .trim()
        .split(/\n\n(?=\S)/)
        .slice(1),
    ),
  );
  sections.push(`Comments of bundled files, by file:\n\n${[...comments].sort().join("\n\n")}`);
  return `Third-party software in this release, and its licenses.\n\n${sections.map((each) => `${SEPARATOR}\n${each}\n`).join("\n")}`;
}

const titleOf = ({ name, version, license }: BundledPackage): string => `${name} ${version} (${license})`;
