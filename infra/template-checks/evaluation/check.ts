// Evaluates both languages with samples of parameters, and checks the results: names, scopes, subnets, outputs and settings. The
// comparison of expressions (parity/) misses a mistake that both languages contain, or that shows only in the value of an
// expression.

import { parse } from "yaml";
import type { BicepFile } from "../bicep/parse.ts";
import type { Finding } from "../expression.ts";
import type { InfraFiles } from "../files.ts";
import { checkKeyRole } from "../key-actions.ts";
import { KINDS } from "../parity/resource-kinds.ts";
import { STORAGE_KEY_SETTING } from "../parity/settings.ts";
import { blocks, type TerraformModule } from "../terraform/check.ts";
import { includes, overlap, parseRange } from "./address-range.ts";
import { deployBicep } from "./bicep.ts";
import type { DeployedResource, Deployment, LimitedParameter } from "./deployed.ts";
import { EvaluationError, textOf, type Value } from "./evaluate.ts";
import { checkNames } from "./names.ts";
import { checkReferences } from "./references.ts";
import {
  EVERY_OPTION,
  OUTPUT_REASONS,
  OUTPUTS,
  REQUIRED,
  type Result,
  SAMPLES,
  type Sample,
  SCOPES,
} from "./samples.ts";
import { deployTerraform } from "./terraform.ts";

/** The templates to evaluate. */
export interface Templates {
  files: InfraFiles;
  bicep: ReadonlyMap<string, BicepFile>;
  modules: readonly TerraformModule[];
}

/** Evaluates a sample in both languages. */
const deploy = ({ files, bicep, modules }: Templates, sample: Sample): Result => ({
  sample,
  bicep: deployBicep({ ...sample, files: bicep, read: files.read, file: sample.bicep }),
  terraform: deployTerraform({ ...sample, modules, read: files.read, folder: sample.terraform }),
});

/** Checks what the templates deploy with each sample. */
export function checkEvaluated(templates: Templates): Finding[] {
  // Templates with mistakes in their syntax or module calls have findings already.
  const isComplete = SAMPLES.every(
    ({ bicep, terraform }) =>
      templates.bicep.has(bicep) && templates.modules.some(({ folder }) => folder === terraform),
  );
  if (!isComplete) return [];
  const results = SAMPLES.map((sample) => deploy(templates, sample));
  const findings = [
    ...results.flatMap(({ bicep, terraform }) => [...bicep.findings, ...terraform.findings]),
    ...checkLimitsAreSampled(results),
    ...checkReferences(templates.modules, templates.files.read),
    ...results.flatMap(compareDeployed),
    ...results.flatMap(({ bicep, terraform }) => [bicep, terraform].flatMap(checkScopes)),
    ...results.flatMap(({ bicep, terraform }) => [bicep, terraform].flatMap(checkKeyRole)),
    ...results.flatMap(({ bicep, terraform }) => [bicep, terraform].flatMap(checkSubnets)),
    ...checkNames(results, (sample) => deploy(templates, sample)),
    ...checkOutputs(templates, results),
    ...results.flatMap(({ sample, bicep, terraform }) =>
      [bicep, terraform].flatMap((deployment) => checkTags(templates, sample, deployment)),
    ),
    ...checkSettings(templates, results),
  ];
  return [...new Map(findings.map((one) => [JSON.stringify(one), one])).values()];
}

/**
 * Checks that the samples give each parameter with limits a valid value other than its default. Otherwise nothing shows that the
 * template accepts any value but the default.
 */
function checkLimitsAreSampled(results: readonly Result[]): Finding[] {
  const limited = results.flatMap(({ bicep, terraform }) => [...bicep.limited, ...terraform.limited]);
  const keyOf = ({ file, name }: LimitedParameter) => `${file} ${name}`;
  const sampledKeys = new Set(limited.filter(({ isGiven }) => isGiven).map(keyOf));
  return limited
    .filter((one) => !sampledKeys.has(keyOf(one)))
    .map((one) =>
      findingAt(
        one,
        `no sample gives ${one.name} a valid value other than its default: add one to evaluation/samples.ts`,
      ),
    );
}

/** Replaces the hash in names, which each language computes in its own way. */
export const withoutHash = (value: string): string => value.replace(/(?<![0-9a-f])[0-9a-f]{13}(?![0-9a-f])/g, "#");

const findingAt = ({ file, line }: { file: string; line: number }, message: string): Finding => ({
  file,
  line,
  message,
});

/**
 * Custom roles whose names differ between the languages. In Terraform each policy has a role of its own, with the policy's
 * subscription in its name, because role names are unique in the tenant. In Bicep all policies share one role.
 */
const NAMED_BY_POLICY = new Set(["event_deployer_definition"]);

/** Returns the values of a resource that must be equal in both languages. */
function comparedValues(resource: DeployedResource): Record<string, string> {
  const { body, scope, type, symbol } = resource;
  const properties = (body.properties ?? {}) as { [key: string]: Value };
  const isTerraform = type.startsWith("azurerm_");
  if (/roleDefinitions$|^azurerm_role_definition$/.test(type))
    return {
      scope,
      // The Terraform parser of these checks drops a space between two parts of a template string.
      ...(!NAMED_BY_POLICY.has(symbol) && {
        "the name of the role": textOf((isTerraform ? body.name : properties.roleName) ?? null).replace(/, /g, ","),
      }),
      "the assignable scopes": textOf((isTerraform ? body.assignable_scopes : properties.assignableScopes) ?? null),
    };
  if (/roleAssignments$|^azurerm_role_assignment$/.test(type))
    return { scope, "the principal": textOf((isTerraform ? body.principal_id : properties.principalId) ?? null) };
  if (/diagnosticSettings$|^azurerm_monitor_diagnostic_setting$/.test(type)) {
    const service = /^<storage_account\.id>\/(\w+)Services\/default$/.exec(scope)?.[1];
    return { scope: service ? `<${service}_service.id>` : scope };
  }
  const name = textOf(body.name ?? null);
  // Names that Azure or the provider generates are not compared.
  return /^(guid|uuidv5)\(|^null$/.test(name) ? {} : { name: withoutHash(name) };
}

/** Compares the resources that both languages deploy: how many there are of each declaration, and their names and scopes. */
function compareDeployed({ sample, bicep, terraform }: Result): Finding[] {
  const symbols = [...new Set(bicep.resources.map(({ symbol }) => symbol))];
  return symbols.flatMap((symbol) => {
    const inBicep = bicep.resources.filter((one) => one.symbol === symbol);
    const kinds = KINDS.filter(({ arm, inside }) => arm === inBicep[0]!.type && !inside);
    const inTerraform = terraform.resources.filter(
      (one) => one.symbol === symbol && kinds.some(({ azurerm }) => azurerm === one.type),
    );
    // Properties that Terraform has inside another resource are compared by parity.
    if (kinds.length === 0 || kinds.some(({ azurerm }) => !terraform.resources.some(({ type }) => type === azurerm)))
      return [];
    const describe = (list: readonly DeployedResource[]) =>
      list
        .map((one) =>
          Object.entries(comparedValues(one))
            .map(([what, value]) => `${what} ${value}`)
            .join(", "),
        )
        .sort()
        .join("; ");
    const [left, right] = [describe(inBicep), describe(inTerraform)];
    return left === right
      ? []
      : [findingAt(inBicep[0]!, `${symbol}: with ${sample.name}, Bicep deploys "${left}", Terraform "${right}"`)];
  });
}

/** Checks the scopes of permissions (SCOPES), and that each custom role can be assigned at its own scope only. */
function checkScopes({ resources }: Deployment): Finding[] {
  return resources.flatMap((one) => {
    const { symbol, scope } = one;
    const expected = SCOPES[symbol];
    const values = comparedValues(one);
    const assignable = values["the assignable scopes"];
    return [
      ...(expected && !expected.includes(scope)
        ? [findingAt(one, `${symbol}: its scope must be ${expected.join(" or ")}, but is ${scope}`)]
        : []),
      ...(assignable !== undefined && assignable !== JSON.stringify([scope])
        ? [findingAt(one, `${symbol}: its assignable scopes must be its scope ${scope}, but are ${assignable}`)]
        : []),
    ];
  });
}

/** Length of the prefix of each subnet that the templates create (docs/deploy-options.md). */
const SUBNET_LENGTH = 26;

/** Checks that the subnets are /26 ranges inside of the network, and do not overlap. */
function checkSubnets({ resources }: Deployment): Finding[] {
  const network = resources.find(({ symbol }) => symbol === "virtual_network");
  if (!network) return [];
  const { properties, address_space: space } = network.body as {
    properties?: { addressSpace?: { addressPrefixes?: string[] } };
    address_space?: string[];
  };
  try {
    const outer = parseRange((properties?.addressSpace?.addressPrefixes ?? space)?.[0] ?? "");
    const subnets = resources
      .filter(({ type }) => /\/subnets$|^azurerm_subnet$/.test(type))
      .map((subnet) => {
        const { properties: own, address_prefixes: prefixes } = subnet.body as {
          properties?: { addressPrefix?: string };
          address_prefixes?: string[];
        };
        return { subnet, range: parseRange(own?.addressPrefix ?? prefixes?.[0] ?? "") };
      });
    return subnets.flatMap(({ subnet, range }, index) => [
      ...(range.length === SUBNET_LENGTH && includes(outer, range)
        ? []
        : [findingAt(subnet, `${subnet.symbol}: must be a /${SUBNET_LENGTH} inside of the network`)]),
      ...(subnets.slice(0, index).some((other) => overlap(other.range, range))
        ? [findingAt(subnet, `${subnet.symbol}: overlaps with another subnet`)]
        : []),
    ]);
  } catch (error) {
    if (!(error instanceof EvaluationError)) throw error;
    return [findingAt(network, error.message)];
  }
}

/**
 * Checks the tags of the service's resources. Each resource that can have tags must have `azd-env-name`, and the app also
 * `azd-service-name`: azd finds the resource group and the app by them.
 */
function checkTags({ files }: Templates, { terraform }: Sample, { resources }: Deployment): Finding[] {
  if (terraform !== "infra/terraform") return [];
  const [service] = Object.keys(
    (parse(files.text.get("azure.yaml") ?? "") as { services?: object } | null)?.services ?? {},
  );
  const canHaveTags = new Set(
    KINDS.filter(({ pairs, inside }) => !inside && pairs.some(({ bicep }) => bicep === "tags")).flatMap((kind) => [
      kind.arm,
      kind.azurerm,
    ]),
  );
  return resources
    .filter(({ type }) => canHaveTags.has(type))
    .flatMap((one) => {
      const tags = (one.body.tags ?? {}) as { [name: string]: Value };
      const expected: [name: string, value: string | undefined][] = [
        ["azd-env-name", REQUIRED.environmentName],
        ...(one.symbol === "function_app" ? [["azd-service-name", service] as [string, string | undefined]] : []),
      ];
      return expected
        .filter(([name, value]) => tags[name] !== value)
        .map(([name, value]) =>
          findingAt(one, `${one.symbol}: its tag ${name} must be ${value}, but is ${textOf(tags[name] ?? null)}`),
        );
    });
}

/**
 * Checks the outputs of both languages against OUTPUTS. The version comes from a file, so only its presence is checked. An output
 * that neither language has is a finding, because users' commands and modules may read it.
 */
function checkOutputs({ bicep, modules }: Templates, results: readonly Result[]): Finding[] {
  const result = results.find(({ sample }) => sample.name === EVERY_OPTION)!;
  const main = bicep.get("infra/azure/main.bicep")!;
  const module = modules.find(({ folder }) => folder === "infra/terraform")!;
  const declared = new Map([
    ...main.outputs.map(({ name, line }) => [name, { file: main.path, line }] as const),
    ...blocks(module, "output").map(({ block, file }) => [block.labels[0]!, { file, line: block.line }] as const),
  ]);
  const names = new Set([...declared.keys()].map((name) => name.toLowerCase()));
  const missing = Object.keys(OUTPUTS)
    .filter((name) => !names.has(name))
    .map((name) =>
      findingAt({ file: main.path, line: 1 }, `no language has the output ${name} any more, which users read`),
    );
  const wrong = [result.bicep.outputs, result.terraform.outputs].flatMap((outputs) =>
    Object.entries(outputs).flatMap(([name, value]) => {
      const key = name.toLowerCase();
      const place = declared.get(name)!;
      if (key === "service_version") return value === null ? [findingAt(place, `${name} has no value`)] : [];
      const [expected, reason] = [OUTPUTS[key], OUTPUT_REASONS[key]];
      const shown = typeof value === "string" ? withoutHash(value) : value;
      if (expected === undefined) return [findingAt(place, `the output ${name} is not in OUTPUTS (samples.ts)`)];
      if (shown === expected) return [];
      const message = `with ${result.sample.name}, the output ${name} must be ${textOf(expected) || "empty"}, but is ${textOf(shown) || "empty"}`;
      return [findingAt(place, reason ? `${message}, since ${reason}` : message)];
    }),
  );
  return [...missing, ...wrong];
}

/** Settings that are not compared: one is only in Terraform, the other is an argument outside of the app settings there. */
const SET_ELSEWHERE = new Set([STORAGE_KEY_SETTING, "APPLICATIONINSIGHTS_CONNECTION_STRING"]);

/** Returns the app settings in both languages. */
const settingsOf = ({
  bicep,
  terraform,
}: Result): { settings: { [name: string]: Value }; resource: DeployedResource }[] =>
  [
    { deployment: bicep, symbol: "app_settings", member: "properties" },
    { deployment: terraform, symbol: "function_app", member: "app_settings" },
  ].flatMap(({ deployment, symbol, member }) => {
    const resource = deployment.resources.find((one) => one.symbol === symbol);
    return resource ? [{ resource, settings: (resource.body[member] ?? {}) as { [name: string]: Value } }] : [];
  });

/**
 * Checks that both languages set the same values, and that additionalSettings can't replace a setting of the templates: a test
 * deployment tries to replace each of them.
 */
function checkSettings(templates: Templates, results: readonly Result[]): Finding[] {
  const different = results.flatMap((result) => {
    const [inBicep, inTerraform] = settingsOf(result);
    if (!inBicep || !inTerraform) return [];
    return Object.entries(inBicep.settings)
      .filter(([name]) => !SET_ELSEWHERE.has(name))
      .filter(([name, value]) => withoutHash(textOf(value)) !== withoutHash(textOf(inTerraform.settings[name] ?? null)))
      .map(([name, value]) =>
        findingAt(
          inBicep.resource,
          `${name}: with ${result.sample.name}, Bicep sets ${textOf(value)}, Terraform ${textOf(inTerraform.settings[name] ?? null)}`,
        ),
      );
  });
  const { sample, ...deployed } = results.find((one) => one.sample.name === EVERY_OPTION)!;
  const names = settingsOf({ sample, ...deployed }).flatMap(({ settings }) => Object.keys(settings));
  const replaced = "a value of additionalSettings";
  const additional = Object.fromEntries(names.map((name) => [name, replaced]));
  const attempted = deploy(templates, {
    ...sample,
    parameters: { ...sample.parameters, additionalSettings: additional },
    variables: { ...sample.variables, additional_settings: additional },
  });
  const overridden = settingsOf(attempted).flatMap(({ settings, resource }, index) =>
    Object.keys(settings)
      // Bicep does not set the setting that only Terraform needs.
      .filter((name) => settings[name] === replaced && !(index === 0 && name === STORAGE_KEY_SETTING))
      // Terraform sets it as an argument of its own.
      .filter((name) => !(index === 1 && name === "APPLICATIONINSIGHTS_CONNECTION_STRING"))
      .map((name) => findingAt(resource, `additionalSettings must not replace ${name}`)),
  );
  return [...different, ...overridden];
}
