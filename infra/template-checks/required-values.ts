import type { BicepFile } from "./bicep/parse.ts";
import { type Expression, type Finding, property } from "./expression.ts";

/**
 * Values that Bicep must write. The parity check then requires them in Terraform. A value that both sides omit would otherwise
 * not be found.
 */
const REQUIRED: readonly { type: string; path: readonly string[]; value: string | boolean; reason: string }[] = [
  {
    type: "Microsoft.Network/privateDnsZones/virtualNetworkLinks",
    path: ["properties", "resolutionPolicy"],
    value: "NxDomainRedirect",
    reason: "a watched vault that has a private endpoint elsewhere has no record in the zone",
  },
  {
    type: "Microsoft.Insights/scheduledQueryRules",
    path: ["properties", "autoMitigate"],
    value: true,
    reason: "an alert must say when it is over",
  },
];

export function checkRequiredValues(bicep: Iterable<BicepFile>): Finding[] {
  return [...bicep].flatMap(({ path: file, resources }) =>
    resources
      .filter(({ existing }) => !existing)
      .flatMap(({ name, type, body, line }) =>
        REQUIRED.filter((one) => one.type === type)
          .filter(({ path, value }) => literal(property(body, ...path)) !== value)
          .map(({ path, value, reason }) => ({
            file,
            line,
            message: `${name}: ${path.join(".")} must be ${value}, since ${reason}`,
          })),
      ),
  );
}

const literal = (expression: Expression | undefined) => (expression?.kind === "literal" ? expression.value : undefined);
