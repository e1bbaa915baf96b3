import { Service } from "../../../test/support/service.ts";
import { observe } from "../case.ts";
import type { Part } from "../part.ts";
import { runPython } from "../python.ts";

// GET /metrics, parsed by the Prometheus client.

const PATH = "/metrics";

/** What python/parse_metrics.py prints. */
interface Parsed {
  families: { name: string; type: string; help: string; samples: number }[];
  /** Series that occur more than once. */
  duplicates: string[];
  /** The values of `lifecycle_assets{type="secret"}` by status. */
  secrets: Record<string, number>;
}

export const part: Part = {
  name: "metrics",
  description: "the Prometheus client parses GET /metrics",
  programs: ["prometheus"],
  needs: ["python"],
  async *run() {
    const service = await Service.start({ company: "small" });
    try {
      await service.scan();
      const { text, headers } = await service.admin("GET", PATH);
      const parse = async (given: string) => JSON.parse(await runPython("parse_metrics.py", given)) as Parsed;
      const cases = [
        observe("content type", "text/plain; version=0.0.4; charset=utf-8", async () => `${headers.get("content-type")}`),
        observe("each family has a help text and the type gauge", "all", async () => {
          const { families } = await parse(text);
          const wrong = families.filter(({ type, help }) => type !== "gauge" || help === "").map(({ name }) => name);
          return families.length === 0 ? "no family" : wrong.join(", ") || "all";
        }),
        observe("no series occurs twice, each family has samples", "holds", async () => {
          const { families, duplicates } = await parse(text);
          const empty = families.filter(({ samples }) => samples === 0).map(({ name }) => name);
          return [...duplicates, ...empty].join(", ") || "holds";
        }),
        observe("the parser reads the numbers that the inventory has", "equal", async () => {
          const { secrets } = await parse(text);
          const assets: { status: string }[] = await service.listAll("/api/assets/discovery/assets?type=secret");
          const expected: Record<string, number> = {};
          for (const { status } of assets) expected[status] = (expected[status] ?? 0) + 1;
          const differing = [...new Set([...Object.keys(secrets), ...Object.keys(expected)])].filter(
            (status) => (secrets[status] ?? 0) !== (expected[status] ?? 0),
          );
          if (assets.length === 0) return "no secrets";
          return differing.map((status) => `${status}: ${secrets[status]}, not ${expected[status]}`).join(", ") || "equal";
        }),
        observe("a client that asks for OpenMetrics gets text 0.0.4", "text/plain; version=0.0.4; charset=utf-8", async () => {
          const token = await service.signIn({ username: "admin", password: "correct-horse-battery" });
          const accept = "application/openmetrics-text; version=1.0.0";
          const answer = await service.call("GET", PATH, { token, headers: { accept } });
          return `${answer.headers.get("content-type")}`;
        }),
        observe("the parser rejects the text without its last quotation mark", /^error: .*ValueError/, () =>
          runPython("parse_metrics.py", text.slice(0, text.lastIndexOf('"'))),
        ),
      ];
      for await (const one of cases) yield { program: "prometheus", ...one };
    } finally {
      await service.stop();
    }
  },
};
