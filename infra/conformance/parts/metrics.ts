import { ADMIN, Service } from "../../../test/support/service.ts";
import { caseRunner, type Part } from "../part.ts";
import { runPython } from "../python.ts";

// GET /metrics, parsed by the Prometheus client.

const TEXT = "text/plain; version=0.0.4; charset=utf-8";

/** Output of python/parse_metrics.py. */
interface Parsed {
  families: { name: string; type: string; help: string; samples: number }[];
  /** Series that occur more than once. */
  duplicates: string[];
  /** The values of `lifecycle_assets{type="secret"}` by status. */
  secrets: Record<string, number>;
}

const parse = async (text: string) => JSON.parse(await runPython("parse_metrics.py", text)) as Parsed;

export const part: Part = {
  name: "metrics",
  description: "the Prometheus client parses GET /metrics",
  programs: ["prometheus"],
  needs: ["python"],
  async *run() {
    const runCase = caseRunner("prometheus");
    const service = await Service.start({ company: "small" });
    try {
      await service.scan();
      const { text, headers } = await service.admin("GET", "/metrics");
      yield await runCase("content type", TEXT, async () => `${headers.get("content-type")}`);
      yield await runCase("an OpenMetrics client gets the same format", TEXT, async () => {
        const accept = "application/openmetrics-text; version=1.0.0";
        const token = await service.signIn(ADMIN);
        return `${(await service.call("GET", "/metrics", { token, headers: { accept } })).headers.get("content-type")}`;
      });
      yield await runCase("every metric has a help text, the type gauge and samples", /^\d\d metrics$/, async () => {
        const { families } = await parse(text);
        const wrong = families.filter(({ type, help, samples }) => type !== "gauge" || help === "" || samples === 0);
        return wrong.map(({ name }) => name).join(", ") || `${families.length} metrics`;
      });
      yield await runCase("series that occur twice", "none", async () => {
        const { duplicates } = await parse(text);
        return duplicates.join(", ") || "none";
      });
      yield await runCase("the numbers of secrets by status equal the inventory", "equal", async () => {
        const assets: { status: string }[] = await service.listAll("/api/assets/discovery/assets?type=secret");
        const counts = Map.groupBy(assets, ({ status }) => status);
        const differing = Object.entries((await parse(text)).secrets).filter(
          ([status, value]) => value !== (counts.get(status)?.length ?? 0),
        );
        return assets.length === 0 ? "no secrets" : differing.map(String).join("; ") || "equal";
      });
      yield await runCase("the text without its last quotation mark is rejected", /^error: ValueError/, () =>
        runPython("parse_metrics.py", text.replace(/"(?=[^"]*$)/, "")),
      );
    } finally {
      await service.stop();
    }
  },
};
