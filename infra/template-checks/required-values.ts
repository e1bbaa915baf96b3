import type { BicepFile } from "./bicep/parse.ts";
import { type Expression, type Finding, property } from "./expression.ts";

/**
 * Values that the Bicep files must set. The parity check, which compares Bicep with Terraform, then requires them in Terraform
 * too. It would not notice a value that both omit.
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
    reason: "an alert must be resolved when its condition is over",
  },
];

/** Checks that each resource of these types sets its required values. */
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
