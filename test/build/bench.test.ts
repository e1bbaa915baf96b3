import { expect, test } from "vitest";
import { mergedPage, problemsOf, render } from "../../infra/bench/page.ts";
import { atMost, equalTo, peakMemory, type Section } from "../../infra/bench/section.ts";

/*
 * Tests of the benchmark report: BENCHMARKS.md has a section for each benchmark, with its measured values and their bounds.
 * `npm run bench -- --check` reports problems if a value exceeds its bound or if the page does not match.
 */

/** Returns a section with a bounded number of calls, a figure with an exact bound, and a figure without one. */
const section = (calls: number): Section => ({
  title: "Calls of a scan",
  how: "Counted.",
  figures: [
    { what: "calls", value: `${calls}`, comparedWith: "100", bound: atMost(calls, 105) },
    { what: "assets", value: "7", comparedWith: "7", bound: equalTo(7, 7) },
    { what: "seconds", value: "3", comparedWith: "" },
  ],
});
const page = mergedPage("", "# Benchmarks", ["calls"], new Map([["calls", render("calls", section(101))]]));

test("a figure beyond its bound is a problem, and the table shows it", () => {
  expect(problemsOf("calls", section(105), page)).toEqual([]);
  expect(problemsOf("calls", section(106), page)).toEqual(["calls: calls is 106, the bound is ≤ 105"]);
  expect(render("calls", section(106))).toContain("≤ 105 **EXCEEDED**");
  const [tooMuchMemory, allowedMemory] = [321, 319].map(
    (megabytes) => peakMemory("memory", megabytes * 1024 * 1024).bound,
  );
  expect([tooMuchMemory, allowedMemory]).toMatchObject([{ holds: false }, { holds: true }]);
});

test("a benchmark without a bound is a problem", () => {
  const { figures, ...rest } = section(1);
  expect(problemsOf("calls", { ...rest, figures: figures.slice(2) })).toEqual(["calls has no bound"]);
});

test("a page whose figures or bounds differ from the measured ones is a problem, but different values are not", () => {
  const renamedFigure = section(102);
  renamedFigure.figures[0]!.what = "requests";
  expect(problemsOf("calls", renamedFigure, page)).toEqual([
    expect.stringContaining("BENCHMARKS.md has other figures or bounds"),
  ]);
  expect(problemsOf("calls", section(104), page.replace("≤ 105", "≤ 110"))).toHaveLength(1);
  expect(problemsOf("calls", section(104), "")).toHaveLength(1);
});

test("a new section is added to the page, and sections that were not measured stay unchanged", () => {
  const both = mergedPage(
    page,
    "# Benchmarks",
    ["calls", "memory"],
    new Map([["memory", render("memory", section(9))]]),
  );
  expect(both).toContain("<!-- /calls -->");
  expect(both).toContain("<!-- /memory -->");
  expect(problemsOf("calls", section(101), both)).toEqual([]);
});
