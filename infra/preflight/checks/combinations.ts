// Checks parameters that contradict each other, and parameters that have no effect. Needs no cloud.

import { type Context, parameterName, proposeValue, rerunCommand, textParameter } from "../context.ts";
import type { CheckResult, Finding } from "../finding.ts";

const SUBNETS = ["functionSubnetResourceId", "privateEndpointSubnetResourceId"] as const;

/** Parameters that need the private network. */
const NEED_NETWORK = ["natGatewayEnabled", "appPrivateEndpointEnabled"] as const;

export function checkCombinations(context: Context): CheckResult {
  const { values } = context.parameters;
  const name = (one: string) => parameterName(context, one);
  const isNetworkOff = values.networkEnabled !== true;
  const subnets = SUBNETS.filter((one) => textParameter(context, one));
  const findings: Finding[] = [];
  /** Adds a finding about a parameter. Its remedy is to set the parameter `fix` to a value. */
  const add = (severity: Finding["severity"], parameter: string, message: string, [fix, value]: [string, boolean]) =>
    findings.push({
      code: severity === "stops" ? "parameter.refused" : "parameter.ignored",
      severity,
      subject: name(parameter),
      message,
      remedy: `Set ${name(fix)} to ${value}.`,
      command: proposeValue(context, fix, value),
    });
  for (const parameter of NEED_NETWORK) {
    if (values[parameter] === true && isNetworkOff)
      add("stops", parameter, `${name(parameter)} needs ${name("networkEnabled")}.`, ["networkEnabled", true]);
  }
  if (values.natGatewayEnabled === true && !isNetworkOff && subnets.length > 0) {
    const message = `${name("natGatewayEnabled")} can't be used with existing subnets, which keep the gateway of their owner.`;
    add("stops", "natGatewayEnabled", message, ["natGatewayEnabled", false]);
  }
  if (subnets.length === 1) {
    const other = SUBNETS.find((one) => one !== subnets[0])!;
    findings.push({
      code: "parameter.oneSubnet",
      severity: "stops",
      subject: name(subnets[0]!),
      message: `${name(subnets[0]!)} is set without ${name(other)}.`,
      remedy: "Set both subnets, or none.",
      command: rerunCommand(context, other, "SUBNET_ID"),
    });
  } else if (subnets.length > 0 && isNetworkOff) {
    const message = `${name(subnets[0]!)} has no effect, because ${name("networkEnabled")} is false.`;
    add("degrades", subnets[0]!, message, ["networkEnabled", true]);
  }
  if (values.appPublicNetworkAccessEnabled === false && values.appPrivateEndpointEnabled !== true) {
    const message = "The app has neither a public address nor a private endpoint, so nobody can call it.";
    add("degrades", "appPublicNetworkAccessEnabled", message, ["appPrivateEndpointEnabled", true]);
  }
  if (findings.length === 0) findings.push(...context.plan.refusals.map((message) => refusal(context, message)));
  const isNotified = Array.isArray(values.operatorEmailAddresses) && values.operatorEmailAddresses.length > 0;
  const note = isNotified ? "" : `; ${name("operatorEmailAddresses")} is empty, so nobody is notified of problems`;
  return { summary: `${Object.keys(values).length} given${note}`, findings };
}

/** Returns the finding for parameters that the templates reject for a reason that this file does not check. */
const refusal = ({ parameters }: Context, message: string): Finding => ({
  code: "parameter.refused",
  severity: "stops",
  subject: parameters.environmentName,
  message: `The templates refuse the parameters: ${message}`,
  remedy: "Change the parameters.",
  command: "az deployment sub validate --location REGION --template-file infra/azure/main.bicep --parameters FILE",
});
