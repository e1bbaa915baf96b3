// Evaluates a Bicep file, and the files that it calls, with a sample of parameters.

import { createHash } from "node:crypto";
import path from "node:path";
import type { BicepFile, Module, Parameter, Resource } from "../bicep/parse.ts";
import { dotted, type Expression, property } from "../expression.ts";
import { snake } from "../parity/normalize.ts";
import { subnetOf } from "./address-range.ts";
import type { DeployedResource, Deployment, Place } from "./deployed.ts";
import { EvaluationError, entriesOf, evaluate, type Names, textOf, type Value } from "./evaluate.ts";
import { exceededLimits, isLimited } from "./limits.ts";

/** Inputs of a deployment of a Bicep file. */
export interface BicepSample {
  files: ReadonlyMap<string, BicepFile>;
  /** Returns the text of a file that a template loads. */
  read(file: string): string;
  /** Path of the file to deploy. */
  file: string;
  parameters: { [name: string]: Value };
  place: Place;
}

/** Returns what a Bicep file deploys. Parameters without a value in the sample have their defaults. */
export function deployBicep({ file, parameters, place, ...context }: BicepSample): Deployment {
  const deployment: Deployment = { resources: [], outputs: {}, limited: [], findings: [] };
  const parsed = context.files.get(file);
  if (!parsed) return deployment;
  const values = new Map(Object.entries(parameters).map(([name, value]) => [name, () => value]));
  const root = new FileDeployment(parsed, values, place, {
    ...context,
    isService: /\/(main|service)\.bicep$/.test(file),
  });
  root.collect(deployment);
  for (const { name, line } of parsed.outputs)
    attempt(deployment, file, line, () => {
      deployment.outputs[name] = root.output(name);
    });
  return deployment;
}

interface Context extends Pick<BicepSample, "files" | "read"> {
  /** True if the deployment creates the service, whose resources its files can read as `existing`. */
  isService: boolean;
}

/** Adds a finding if the work ends with an `EvaluationError`. */
function attempt({ findings }: Deployment, file: string, line: number, work: () => void): void {
  try {
    work();
  } catch (error) {
    if (!(error instanceof EvaluationError)) throw error;
    findings.push({ file, line, message: `can't be evaluated: ${error.message}` });
  }
}

/**
 * One deployment of one Bicep file: the file with the parameters and the place of one call. Evaluates lazily, because a parameter
 * can refer to an output of another call.
 */
class FileDeployment {
  readonly #file: BicepFile;
  readonly #parameters: ReadonlyMap<string, () => Value>;
  readonly #place: Place;
  readonly #context: Context;
  readonly #modules = new Map<string, FileDeployment>();

  constructor(file: BicepFile, parameters: ReadonlyMap<string, () => Value>, place: Place, context: Context) {
    this.#file = file;
    this.#parameters = parameters;
    this.#place = place;
    this.#context = context;
  }

  /** Adds the resources of this file and of the files that it calls. */
  collect(deployment: Deployment): void {
    const { path: file, parameters, resources, modules } = this.#file;
    for (const parameter of parameters.filter(isLimited))
      attempt(deployment, file, parameter.line, () => this.#checkLimits(parameter, deployment));
    for (const resource of resources.filter(({ existing }) => !existing)) {
      attempt(deployment, file, resource.line, () => {
        for (const names of this.#iterations(resource)) deployment.resources.push(this.#deployed(resource, names));
      });
    }
    for (const module of modules) {
      attempt(deployment, file, module.line, () => {
        for (const names of this.#iterations(module)) this.#called(module, names).collect(deployment);
      });
    }
  }

  /** Checks that a parameter accepts the value that the sample or the caller gives it. */
  #checkLimits(parameter: Parameter, { limited, findings }: Deployment): void {
    const { name, line, defaultValue } = parameter;
    const names = this.#names({});
    const value = evaluate({ line, kind: "name", name }, names);
    const file = this.#file.path;
    const isGiven = !defaultValue || textOf(value) !== textOf(evaluate(defaultValue, names));
    // Recorded for the check that some sample gives each limited parameter a value other than the default.
    limited.push({ file, line, name, isGiven });
    for (const limit of exceededLimits(parameter, value))
      findings.push({ file, line, message: `${limit} of ${name} refuses ${textOf(value)}, which is a valid value` });
  }

  /** Returns the value of an output. */
  output(name: string): Value {
    const output = this.#file.outputs.find((one) => one.name === name);
    if (!output) throw new EvaluationError(`${this.#file.path} has no output ${name}`);
    return evaluate(output.value, this.#names({}));
  }

  #deployed({ type, name, line, body }: Resource, names: Names): DeployedResource {
    const entries = body.kind === "object" ? body.entries : [];
    const parts = { line, kind: "object" as const, entries: entries.filter(({ key }) => !LINKS.has(key ?? "")) };
    const scope = property(body, "scope");
    return {
      file: this.#file.path,
      line,
      type,
      symbol: snake(name),
      scope: scope ? this.#idOf(scope, names) : idOfPlace(this.#place),
      body: evaluate(parts, names) as { [key: string]: Value },
    };
  }

  /** Returns the id of the resource that an expression names as the scope of another resource. */
  #idOf(expression: Expression, names: Names): string {
    const id = { line: expression.line, kind: "member", of: expression, name: "id" } as const;
    return textOf(evaluate(id, names));
  }

  /**
   * Returns the names for each iteration of a declaration's loop, without those whose condition is false. A declaration without a
   * loop has one iteration.
   */
  #iterations({ condition, loop }: Resource | Module): Names[] {
    const names = this.#names({});
    const iterations = loop
      ? entriesOf(evaluate(loop.over, names)).map(([key, value]) => names.bind(loop.variables, key, value))
      : [names];
    return iterations.filter((iteration) => !condition || evaluate(condition, iteration) === true);
  }

  /**
   * Returns the deployment of a called file. One call has one deployment per place: a loop must give each iteration another
   * scope, as all loops of the templates do.
   */
  #called(module: Module, names: Names): FileDeployment {
    const place = this.#placeOf(property(module.body, "scope"), names);
    const key = `${module.name} ${idOfPlace(place)}`;
    const existing = this.#modules.get(key);
    if (existing) return existing;
    const target = path.posix.join(path.posix.dirname(this.#file.path), module.path);
    const file = this.#context.files.get(target);
    if (!file) throw new EvaluationError(`there is no file ${target}`);
    const passed = property(module.body, "params");
    const entries = passed?.kind === "object" ? passed.entries : [];
    const parameters = new Map(
      entries.map(({ key: name, value }) => [name ?? "", memoized(() => evaluate(value, names))]),
    );
    const created = new FileDeployment(file, parameters, place, this.#context);
    this.#modules.set(key, created);
    return created;
  }

  /** Returns the place of a call: `resourceGroup(…)`, `subscription(…)` or a resource group of this file. */
  #placeOf(scope: Expression | undefined, names: Names): Place {
    if (!scope) return this.#place;
    if (scope.kind === "name") {
      const group = this.#file.resources.find(({ name }) => name === scope.name);
      const name = group && property(group.body, "name");
      if (!name) throw new EvaluationError(`${scope.name} is no scope`);
      return { ...this.#place, resourceGroup: textOf(evaluate(name, names)) };
    }
    const value = evaluate(scope, names) as { [key: string]: Value };
    const { managementGroup: _, resourceGroup: __, ...place } = this.#place;
    return {
      ...place,
      subscriptionId: textOf(value.subscriptionId ?? null),
      ...(value.resourceGroupName && { resourceGroup: textOf(value.resourceGroupName) }),
    };
  }

  #names(variables: { [name: string]: Value }): Names {
    const names: Names = {
      reference: (expression) => this.#reference(expression, variables, names),
      call: (call, inner) => this.#call(call, inner),
      bind: ([first, second], key, value) =>
        // Bicep names the item before its index.
        this.#names({ ...variables, [first!]: value, ...(second !== undefined && { [second]: key }) }),
    };
    return names;
  }

  #reference(expression: Expression, variables: { [name: string]: Value }, names: Names): Value | undefined {
    const [root, ...rest] = dotted(expression) ?? [];
    if (root === undefined) return undefined;
    if (expression.kind === "name") {
      if (root in variables) return variables[root];
      const variable = this.#file.variables.find(({ name }) => name === root);
      if (variable) return evaluate(variable.value, this.#names({}));
      const given = this.#parameters.get(root);
      const parameter = this.#file.parameters.find(({ name }) => name === root);
      if (parameter && given) return given();
      if (parameter?.defaultValue) return evaluate(parameter.defaultValue, this.#names({}));
      throw new EvaluationError(`${root} has no value`);
    }
    const module = this.#file.modules.find(({ name }) => name === root);
    if (module && rest[0] === "outputs") {
      // Only the whole reference `module.outputs.name` is resolved: more members are members of the output.
      if (rest.length !== 2) return undefined;
      const [iteration] = this.#iterations(module);
      if (!iteration) throw new EvaluationError(`${root} is read, but not deployed`);
      return this.#called(module, iteration).output(rest[1]!);
    }
    const resource = this.#file.resources.find(({ name }) => name === root);
    return resource && rest.length > 0 ? this.#memberOf(resource, rest, expression, names) : undefined;
  }

  /** Returns a member of a resource: its name, or a placeholder for a value that only Azure knows. */
  #memberOf(resource: Resource, members: string[], expression: Expression, names: Names): Value {
    const index = indexIn(expression);
    const position = index && textOf(evaluate(index, names));
    // An index counts all iterations of a loop, so none may be left out because of its condition.
    const iterations = resource.existing
      ? [this.#names({})]
      : this.#iterations({ ...resource, ...(index && { condition: TRUE }) });
    const iteration = iterations[Number(position ?? 0)];
    if (!iteration) throw new EvaluationError(`${resource.name} is read, but not created`);
    const nameOf = property(resource.body, "name");
    const name = nameOf ? textOf(evaluate(nameOf, iteration)) : "";
    const member = members
      .filter((one) => one !== "properties")
      .map(snake)
      .join("_");
    if (member === "name") return name;
    // A file that is deployed on its own, and those of the renewal of certificates, read resources that exist.
    const isForeign = !this.#context.isService || this.#file.path.startsWith("infra/azure/certificates/");
    if (member === "id" && resource.existing && isForeign) return this.#existingId(resource, name, names);
    return `<${snake(resource.name)}${resource.loop ? `(${name})` : ""}.${member}>`;
  }

  /** Returns the id of a resource that is not created here, from its type, its name and its parents. */
  #existingId({ type, body }: Resource, name: string, names: Names): string {
    const parent = property(body, "parent");
    return parent
      ? `${this.#idOf(parent, names)}/${type.split("/").at(-1)}/${name}`
      : `${idOfPlace(this.#place)}/providers/${type}/${name}`;
  }

  /** Returns the suffixes of the cloud. The one of vaults starts with a dot. */
  #suffixes(): Value {
    const clouds = JSON.parse(this.#context.read("infra/azure/clouds.json")) as Record<string, Record<string, string>>;
    const { vaultDomain, storageDomain } = clouds[this.#place.cloud] ?? {};
    return { keyvaultDns: `.${vaultDomain}`, storage: storageDomain ?? null };
  }

  #call(call: Extract<Expression, { kind: "call" }>, names: Names): Value {
    const args = call.args.map((argument) => evaluate(argument, names));
    const texts = args.map(textOf);
    const place = this.#place;
    const load = () => this.#context.read(path.posix.join(path.posix.dirname(this.#file.path), texts[0]!));
    switch (call.name) {
      case "deployer":
        return { objectId: place.deployerObjectId, tenantId: place.tenantId };
      case "environment":
        return { name: place.cloud, suffixes: this.#suffixes() };
      case "subscription": {
        const subscriptionId = texts[0] ?? place.subscriptionId;
        return { id: `/subscriptions/${subscriptionId}`, subscriptionId, tenantId: place.tenantId };
      }
      case "resourceGroup": {
        const name = texts.at(-1) ?? place.resourceGroup ?? "";
        const subscriptionId = texts.length === 2 ? texts[0]! : place.subscriptionId;
        const id = `/subscriptions/${subscriptionId}/resourceGroups/${name}`;
        return { id, name, resourceGroupName: name, subscriptionId, location: "westeurope" };
      }
      case "managementGroup":
        return { id: idOfPlace(place), name: place.managementGroup ?? "" };
      case "loadTextContent":
        return `file(${path.posix.basename(texts[0]!)})`;
      case "loadJsonContent":
        // The second argument is a JSON path with one member: `$.version`.
        return memberOfJson(load(), texts[1]?.slice("$.".length));
      default: {
        const work = FUNCTIONS[call.name];
        if (!work) throw new EvaluationError(`the function ${call.name} is not supported`);
        return work(args, texts);
      }
    }
  }
}

const TRUE: Expression = { line: 0, kind: "literal", value: true };

/** Members of a declaration that link resources. */
const LINKS = new Set(["scope", "parent", "dependsOn"]);

/** Returns the index of `name[index].member`. Undefined if there is none. */
function indexIn(expression: Expression): Expression | undefined {
  if (expression.kind === "member") return indexIn(expression.of);
  return expression.kind === "index" && expression.of.kind === "name" ? expression.index : undefined;
}

function memberOfJson(text: string, member: string | undefined): Value {
  const content = JSON.parse(text) as { [key: string]: Value };
  return member === undefined ? content : (content[member] ?? null);
}

function memoized(work: () => Value): () => Value {
  let cached: { value: Value } | undefined;
  return () => {
    cached ??= { value: work() };
    return cached.value;
  };
}

function idOfPlace({ subscriptionId, resourceGroup, managementGroup }: Place): string {
  if (managementGroup !== undefined) return `/providers/Microsoft.Management/managementGroups/${managementGroup}`;
  return `/subscriptions/${subscriptionId}${resourceGroup === undefined ? "" : `/resourceGroups/${resourceGroup}`}`;
}

const isEmpty = (value: Value | undefined): boolean =>
  value === undefined ||
  value === null ||
  value === "" ||
  (typeof value === "object" && Object.keys(value).length === 0);

/** Length of the texts that `uniqueString` returns. */
const UNIQUE_LENGTH = 13;

/** Functions that depend on their arguments only. */
const FUNCTIONS: Record<string, (args: Value[], texts: string[]) => Value> = {
  cidrSubnet: (_, [range, length, index]) => subnetOf(range!, Number(length), Number(index)),
  concat: (args) => args.flat(),
  contains: ([of], [, item]) =>
    typeof of === "object" && of !== null && !Array.isArray(of)
      ? item! in of
      : (of as string | Value[]).includes(item!),
  empty: ([value]) => isEmpty(value),
  fail: (_, [message]) => {
    throw new EvaluationError(message!);
  },
  flatten: ([lists]) => (lists as Value[]).flat(),
  guid: (_, texts) => `guid(${texts.join(", ")})`,
  items: ([object]) => entriesOf(object ?? null).map(([key, value]) => ({ key, value })),
  join: ([list], [, separator]) => (list as Value[]).map(textOf).join(separator),
  last: ([list]) => (Array.isArray(list) ? (list.at(-1) ?? null) : textOf(list ?? null).slice(-1)),
  resourceId: (_, texts) => texts.join("/"),
  split: (_, [text, separator]) => text!.split(separator!),
  subscriptionResourceId: (_, texts) => texts.join("/"),
  tenantResourceId: (_, texts) => texts.join("/"),
  toLower: (_, [text]) => text!.toLowerCase(),
  // A text among objects is a placeholder for an object that only Azure knows. It is left out.
  union: (args) =>
    Array.isArray(args[0])
      ? [...new Set(args.flat())]
      : Object.assign({}, ...args.map((one) => (typeof one === "object" ? one : {}))),
  // Any text of the same length that depends on each argument.
  uniqueString: (_, texts) => hash(texts.join("-")).slice(0, UNIQUE_LENGTH),
};

const hash = (text: string): string => createHash("sha256").update(text).digest("hex");
