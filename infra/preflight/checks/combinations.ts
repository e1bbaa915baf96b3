// Checks parameters that contradict each other, and parameters that have no effect. Needs no cloud.

import { type Context, parameterName, setCommand, textParameter } from "../context.ts";
import type { CheckResult, Finding } from "../finding.ts";

const SUBNETS = ["functionSubnetResourceId", "privateEndpointSubnetResourceId"] as const;

export function checkCombinations(context: Context): CheckResult {
  const { values } = context.parameters;
  const findings: Finding[] = [];
  const name = (one: string) => parameterName(context, one);
  const ignored = (parameter: string, reason: string, fix: [string, boolean]) =>
    findings.push({
      code: "parameter.ignored",
      severity: "degrades",
      subject: name(parameter),
      message: `${name(parameter)} has no effect, because ${reason}.`,
      remedy: `Set ${name(fix[0])} to ${fix[1]}.`,
      command: setCommand(context, ...fix),
    });
  const subnets = SUBNETS.filter((one) => textParameter(context, one));
  if (subnets.length === 1) {
    const other = SUBNETS.find((one) => one !== subnets[0])!;
    findings.push({
      code: "parameter.oneSubnet",
      severity: "stops",
      subject: name(subnets[0]!),
      message: `${name(subnets[0]!)} is set without ${name(other)}.`,
      remedy: "Set both subnets, or none.",
      command: `npm run preflight -- --subscription ${context.subscription.id} --set '${other}=SUBNET_ID' --write ${context.language}`,
    });
  }
  const isNetworkOff = values.networkEnabled !== true;
  if (values.natGatewayEnabled === true && isNetworkOff)
    ignored("natGatewayEnabled", `${name("networkEnabled")} is false`, ["networkEnabled", true]);
  else if (values.natGatewayEnabled === true && subnets.length > 0)
    ignored("natGatewayEnabled", "existing subnets keep the gateway of their owner", ["natGatewayEnabled", false]);
  if (subnets.length > 0 && isNetworkOff)
    ignored(subnets[0]!, `${name("networkEnabled")} is false`, ["networkEnabled", true]);
  const isNotified = Array.isArray(values.operatorEmailAddresses) && values.operatorEmailAddresses.length > 0;
  const note = isNotified ? "" : `; ${name("operatorEmailAddresses")} is empty, so nobody is notified of problems`;
  return { summary: `${Object.keys(values).length} given${note}`, findings };
}
