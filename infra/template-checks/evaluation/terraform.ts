// Evaluates a Terraform module, and the modules that it calls, with a sample of variables.

import { createHash } from "node:crypto";
import path from "node:path";
import { dotted, type Expression, text } from "../expression.ts";
import { COMMON_MEMBER_NAMES } from "../parity/normalize.ts";
import { blocks, STATE_ONLY, type TerraformModule } from "../terraform/check.ts";
import type { Block } from "../terraform/parse.ts";
import { parseRange, subnetOf } from "./address-range.ts";
import type { Deployment, Place } from "./deployed.ts";
import { EvaluationError, entriesOf, evaluate, type Names, textOf, type Value } from "./evaluate.ts";

/** Inputs of a deployment of a Terraform module. */
export interface TerraformSample {
  modules: readonly TerraformModule[];
  /** Returns the text of a file that a module reads. */
  read(file: string): string;
  /** Folder of the module. */
  folder: string;
  variables: { [name: string]: Value };
  place: Place;
  /** True to write placeholders as the provider names them: `<azurerm_key_vault.vault.id>`. */
  isQualified?: boolean;
}

/** Returns what a Terraform module creates. Variables without a value in the sample have their defaults. */
export function deployTerraform(sample: TerraformSample): Deployment {
  const deployment: Deployment = { resources: [], outputs: {}, limited: [], findings: [] };
  const root = moduleOf(sample);
  root.collect(deployment);
  for (const { block, file } of root.blocks("output"))
    attempt(deployment, file, block.line, () => {
      deployment.outputs[block.labels[0]!] = root.output(block.labels[0]!);
    });
  return deployment;
}

/** Returns whether a condition of a module holds, such as one of `validation`. */
export const conditionHolds = (sample: TerraformSample, condition: Expression): boolean =>
  evaluate(condition, moduleOf(sample).names({})) === true;

function moduleOf({ folder, variables, ...context }: TerraformSample): ModuleDeployment {
  const module = context.modules.find((one) => one.folder === folder);
  if (!module) throw new Error(`There is no module ${folder}.`);
  const values = new Map(Object.entries(variables).map(([name, value]) => [name, () => value]));
  return new ModuleDeployment(module, values, context);
}

function attempt({ findings }: Deployment, file: string, line: number, work: () => void): void {
  try {
    work();
  } catch (error) {
    if (!(error instanceof EvaluationError)) throw error;
    findings.push({ file, line, message: `can't be evaluated: ${error.message}` });
  }
}

/** Arguments of a resource that Terraform itself reads. */
const META = new Set(["count", "for_each", "depends_on", "lifecycle", "provider"]);

/** One deployment of one module. */
class ModuleDeployment {
  readonly #module: TerraformModule;
  readonly #variables: ReadonlyMap<string, () => Value>;
  readonly #context: Omit<TerraformSample, "folder" | "variables">;
  readonly #locals = new Map<string, Value>();
  readonly #called = new Map<string, ModuleDeployment>();

  constructor(
    module: TerraformModule,
    variables: ReadonlyMap<string, () => Value>,
    context: Omit<TerraformSample, "folder" | "variables">,
  ) {
    this.#module = module;
    this.#variables = variables;
    this.#context = context;
  }

  blocks(type: string): { block: Block; file: string }[] {
    return blocks(this.#module, type);
  }

  /** Adds the resources of this module and of the modules that it calls. */
  collect(deployment: Deployment): void {
    for (const { block, file } of this.blocks("variable").filter((one) => one.block.blocks.length > 0))
      attempt(deployment, file, block.line, () => this.#checkValidations(block, file, deployment));
    for (const { block, file } of this.blocks("resource").filter((one) => one.block.labels[0] !== STATE_ONLY)) {
      attempt(deployment, file, block.line, () => {
        for (const names of this.#instances(block)) {
          const preconditions = block.blocks.find(({ type }) => type === "lifecycle")?.blocks ?? [];
          for (const { line, message } of refusalsIn(preconditions, names))
            deployment.findings.push({ file, line, message: `${block.labels[1]} refuses valid values: ${message}` });
          const body = bodyOf(block, names);
          const [type, symbol] = block.labels as [string, string];
          const scope = textOf(body.scope ?? body.target_resource_id ?? body.resource_group_name ?? null);
          deployment.resources.push({ file, line: block.line, type, symbol, scope, body });
        }
      });
    }
    for (const { block, file } of this.blocks("module")) {
      attempt(deployment, file, block.line, () => {
        for (const names of this.#instances(block)) this.#call(block, names).collect(deployment);
      });
    }
  }

  /** Checks that a variable accepts the value that the sample or the calling module gives it. */
  #checkValidations(block: Block, file: string, { limited, findings }: Deployment): void {
    const name = block.labels[0]!;
    const value = this.#variable(name);
    const names = this.names({});
    const defaultValue = block.attributes.get("default")?.value;
    const isGiven = !defaultValue || textOf(value) !== textOf(evaluate(defaultValue, names));
    limited.push({ file, line: block.line, name: `var.${name}`, isGiven });
    for (const { line, message } of refusalsIn(block.blocks, names))
      findings.push({
        file,
        line,
        message: `var.${name} refuses ${textOf(value)}, which is a valid value: ${message}`,
      });
  }

  /** Returns the value of an output. */
  output(name: string): Value {
    const output = this.blocks("output").find(({ block }) => block.labels[0] === name)?.block;
    const value = output?.attributes.get("value")?.value;
    if (!value) throw new EvaluationError(`${this.#module.folder} has no output ${name}`);
    return evaluate(value, this.names({}));
  }

  /** Returns the names for each instance of a block: one for each item of `for_each`, none if `count` is 0, otherwise one. */
  #instances(block: Block): Names[] {
    const count = block.attributes.get("count")?.value;
    if (count) return evaluate(count, this.names({})) === 0 ? [] : [this.names({})];
    const each = block.attributes.get("for_each")?.value;
    if (!each) return [this.names({})];
    const over = evaluate(each, this.names({}));
    // The items of a set are its keys too.
    return entriesOf(over).map(([key, value]) =>
      this.names({ each: { key: Array.isArray(over) ? value : key, value } }),
    );
  }

  #call(block: Block, names: Names): ModuleDeployment {
    const name = block.labels[0]!;
    const each = block.attributes.has("for_each") ? textOf(evaluate(EACH_KEY, names)) : "";
    const existing = this.#called.get(`${name} ${each}`);
    if (existing) return existing;
    const folder = path.posix.join(this.#module.folder, text(block.attributes.get("source")?.value) ?? "");
    const module = this.#context.modules.find((one) => one.folder === folder);
    if (!module) throw new EvaluationError(`there is no module ${folder}`);
    const variables = new Map(
      [...block.attributes].map(([key, { value }]) => [key, () => evaluate(value, names)] as const),
    );
    const created = new ModuleDeployment(module, variables, this.#context);
    this.#called.set(`${name} ${each}`, created);
    return created;
  }

  names(variables: { [name: string]: Value }): Names {
    const names: Names = {
      reference: (expression) => this.#reference(expression, variables, names),
      call: (call, inner) => this.#evaluateCall(call, inner),
      bind: ([first, second], key, value) =>
        this.names({
          ...variables,
          ...(second === undefined ? { [first!]: value } : { [first!]: key, [second]: value }),
        }),
    };
    return names;
  }

  #reference(expression: Expression, variables: { [name: string]: Value }, names: Names): Value | undefined {
    const [root, name, ...rest] = dotted(expression) ?? [];
    if (root === undefined) return undefined;
    if (expression.kind === "name") {
      if (root in variables) return variables[root];
      throw new EvaluationError(`${root} has no value`);
    }
    if (root in variables || name === undefined) return undefined;
    if (root.startsWith("azurerm_"))
      return rest.length > 0 && expression.kind === "member"
        ? this.#memberOf(root, name, rest, expression, names)
        : undefined;
    if (root === STATE_ONLY) return rest.length > 0 ? this.#inputOf(name) : undefined;
    if (root === "data") return rest.length === 2 ? this.#dataOf(rest[1]!) : undefined;
    if (root === "module") {
      if (rest.length !== 1 || expression.kind !== "member") return undefined;
      const call = this.blocks("module").find(({ block }) => block.labels[0] === name)?.block;
      const [instance] = call ? this.#instances(call) : [];
      if (!call || !instance) throw new EvaluationError(`module.${name} is read, but not called`);
      return this.#call(call, instance).output(rest[0]!);
    }
    // Further members are members of the value.
    if (rest.length > 0 || expression.kind !== "member") return undefined;
    if (root === "var") return this.#variable(name);
    if (root === "local") return this.#local(name);
    return root === "path" ? "." : undefined;
  }

  #variable(name: string): Value {
    const given = this.#variables.get(name);
    if (given) return given();
    const declared = this.blocks("variable").find(({ block }) => block.labels[0] === name)?.block;
    const value = declared?.attributes.get("default")?.value;
    if (!value) throw new EvaluationError(`var.${name} has no value`);
    return evaluate(value, this.names({}));
  }

  #local(name: string): Value {
    if (!this.#locals.has(name)) {
      const block = this.blocks("locals").find((one) => one.block.attributes.has(name))?.block;
      if (!block) throw new EvaluationError(`local.${name} is not declared`);
      this.#locals.set(name, evaluate(block.attributes.get(name)!.value, this.names({})));
    }
    return this.#locals.get(name)!;
  }

  /** Returns the `input` of a `terraform_data` resource, whose value the state keeps. */
  #inputOf(name: string): Value {
    const block = this.blocks("resource").find((one) => one.block.labels[1] === name)?.block;
    return evaluate(block!.attributes.get("input")!.value, this.names({}));
  }

  /** Returns a member of a data source. The modules read only the tenant, the subscription and who deploys. */
  #dataOf(member: string): Value {
    const { tenantId, subscriptionId, deployerObjectId } = this.#context.place;
    const values: Record<string, Value> = {
      tenant_id: tenantId,
      subscription_id: subscriptionId,
      object_id: deployerObjectId,
    };
    return values[member] ?? null;
  }

  /** Returns a member of a resource: its name, or a placeholder for a value that only Azure knows. */
  #memberOf(type: string, symbol: string, members: string[], expression: Expression, names: Names): Value {
    const block = this.blocks("resource").find(
      ({ block: { labels } }) => labels[0] === type && labels[1] === symbol,
    )?.block;
    const index = indexIn(expression);
    const key = index && evaluate(index, names);
    // The index of a resource with `count` is 0, its only instance.
    const instanceNames =
      block && this.#instances(block).find((one) => typeof key !== "string" || evaluate(EACH_KEY, one) === key);
    if (!block || !instanceNames) throw new EvaluationError(`${type}.${symbol} is read, but not created`);
    const nameOf = block.attributes.get("name")?.value;
    const name = nameOf ? textOf(evaluate(nameOf, instanceNames)) : "";
    const member = members.join("_");
    if (member === "name") return name;
    const instance = block.attributes.has("for_each") ? `(${name})` : "";
    if (this.#context.isQualified) return `<${type}.${symbol}${instance}.${member}>`;
    return `<${symbol}${instance}.${COMMON_MEMBER_NAMES[member] ?? member}>`;
  }

  #evaluateCall(call: Extract<Expression, { kind: "call" }>, names: Names): Value {
    const args = call.args.map((argument) => evaluate(argument, names));
    if (call.name === "file") {
      const file = path.posix.join(this.#module.folder, textOf(args[0] ?? null));
      // JSON is read for `jsondecode`. The workbook is passed on as text, for which Bicep has the same placeholder.
      return file.endsWith(".json") && !file.endsWith("workbook.json")
        ? this.#context.read(file)
        : `file(${path.posix.basename(file)})`;
    }
    const work = FUNCTIONS[call.name];
    if (!work) throw new EvaluationError(`the function ${call.name} is not supported`);
    return work(args, args.map(textOf));
  }
}

const EACH_KEY: Expression = {
  line: 0,
  kind: "member",
  of: { line: 0, kind: "name", name: "each" },
  name: "key",
};

/**
 * Returns the blocks whose condition does not hold, each with its message. Terraform also rejects values for which it
 * can't evaluate a condition.
 */
function refusalsIn(conditions: readonly Block[], names: Names): { line: number; message: string }[] {
  return conditions.flatMap(({ attributes, line }) => {
    const condition = attributes.get("condition")?.value;
    if (!condition) return [];
    const message = text(attributes.get("error_message")?.value) ?? "";
    try {
      return evaluate(condition, names) === true ? [] : [{ line, message }];
    } catch (error) {
      if (!(error instanceof EvaluationError)) throw error;
      return [{ line, message: `${message} (${error.message})` }];
    }
  });
}

/** Returns the index of `type.name[index].member`. Undefined if there is none. */
function indexIn(expression: Expression): Expression | undefined {
  if (expression.kind === "index") {
    const isResource = expression.of.kind === "member" && expression.of.of.kind === "name";
    return isResource ? expression.index : indexIn(expression.of);
  }
  return expression.kind === "member" ? indexIn(expression.of) : undefined;
}

/** Returns the arguments of a block. Blocks in it are lists by their type. */
function bodyOf(block: Block, names: Names): { [key: string]: Value } {
  const body: { [key: string]: Value } = {};
  for (const [name, { value }] of block.attributes) if (!META.has(name)) body[name] = evaluate(value, names);
  for (const inner of block.blocks) {
    if (META.has(inner.type)) continue;
    const name = inner.type === "dynamic" ? inner.labels[0]! : inner.type;
    const created = inner.type === "dynamic" ? dynamicBlocks(inner, name, names) : [bodyOf(inner, names)];
    body[name] = [...((body[name] as Value[] | undefined) ?? []), ...created];
  }
  return body;
}

function dynamicBlocks(block: Block, name: string, names: Names): Value[] {
  const content = block.blocks.find(({ type }) => type === "content");
  const over = block.attributes.get("for_each")?.value;
  if (!content || !over) return [];
  return entriesOf(evaluate(over, names)).map(([key, value]) =>
    bodyOf(content, names.bind([name], key, { key, value })),
  );
}

/** Functions: https://developer.hashicorp.com/terraform/language/functions */
const FUNCTIONS: Record<string, (args: Value[], texts: string[]) => Value> = {
  alltrue: ([list]) => (list as Value[]).every((one) => one === true),
  cidrsubnet: (_, [range, bits, index]) => subnetOf(range!, parseRange(range!).length + Number(bits), Number(index)),
  coalesce: (args) => args.find((one) => one !== null && one !== "") ?? null,
  compact: ([list]) => (list as Value[]).filter((one) => one !== null && one !== ""),
  concat: (args) => args.flat(),
  contains: ([list, item]) => (list as Value[]).includes(item!),
  distinct: ([list]) => [...new Set(list as Value[])],
  flatten: ([lists]) => (lists as Value[]).flat(),
  join: ([, list], [separator]) => (list as Value[]).map(textOf).join(separator),
  jsondecode: (_, [json]) => JSON.parse(json!) as Value,
  jsonencode: ([value]) => value ?? null,
  keys: ([map]) => Object.keys((map ?? {}) as { [key: string]: Value }),
  length: ([of]) => (typeof of === "string" ? of.length : Object.keys(of ?? {}).length),
  lookup: ([map, , otherwise], [, key]) => (map as { [name: string]: Value })[key!] ?? otherwise ?? null,
  lower: (_, [value]) => value!.toLowerCase(),
  merge: (args) => Object.assign({}, ...args),
  regex: (_, [pattern, value]) => {
    // RE2 has flags in the pattern, JavaScript beside it.
    const found = new RegExp(pattern!.replace(/^\(\?i\)/, ""), pattern!.startsWith("(?i)") ? "i" : "").exec(value!);
    if (!found) throw new EvaluationError(`${value} does not match ${pattern}`);
    return found[0];
  },
  sha1: (_, [value]) => createHash("sha1").update(value!).digest("hex"),
  split: (_, [separator, value]) => value!.split(separator!),
  substr: (_, [value, from, length]) => value!.slice(Number(from), Number(from) + Number(length)),
  tonumber: (_, [value]) => {
    if (Number.isNaN(Number(value))) throw new EvaluationError(`${value} is no number`);
    return Number(value);
  },
  toset: ([list]) => list ?? null,
  tostring: (_, [value]) => value!,
  uuidv5: (_, texts) => `uuidv5(${texts.join(", ")})`,
  values: ([map]) => Object.values((map ?? {}) as { [key: string]: Value }),
};
