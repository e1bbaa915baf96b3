// Checks the order in which the templates create resources. Both languages create resources concurrently, unless one of them
// refers to the other or declares a dependency on it.
//
// Each language is converted to a graph of references. A resource is created after another one if the graph has a path to it.

import path from "node:path";
import type { BicepFile } from "./bicep/parse.ts";
import { children, dotted, type Expression, type Finding, text } from "./expression.ts";
import { snake } from "./parity/normalize.ts";
import { blocks, type TerraformModule } from "./terraform/check.ts";
import type { Block } from "./terraform/parse.ts";

interface Ordering {
  /** Names of declarations in snake_case. Each is created after all of `before`. */
  after: readonly string[];
  before: readonly string[];
  reason: string;
}

/** Orders that a language must declare, if it has both resources. */
const ORDERINGS: readonly Ordering[] = [
  {
    after: ["function_app"],
    before: [
      "blob_role",
      "queue_role",
      "table_role",
      "vault_role",
      "telemetry_role",
      "mail_role",
      "app_configuration_role",
    ],
    reason: "an app that starts without its roles fails until its next start",
  },
  {
    after: ["function_app"],
    before: ["private_endpoint", "virtual_network_link", "private_dns_zone_group"],
    reason:
      "an app in a private network can resolve its secrets only through the endpoints, and keeps a failure for a day",
  },
  {
    after: ["function_app"],
    before: ["deployment_container"],
    reason: "the platform reads the package from the container",
  },
  {
    after: ["app_settings"],
    before: ["vault_reference_role"],
    reason: "the platform resolves the secrets in the settings when the settings are written",
  },
  {
    after: ["topic", "event_subscription", "service_event_identity_id"],
    before: ["topic_sender_role"],
    reason: "Event Grid tests the role when the subscription is created",
  },
  {
    after: ["subscription_policy_remediation"],
    before: ["subscription_topics_role", "identity_operator_role", "event_deployer_role"],
    reason: "the remediation fails without the roles of the policy",
  },
];

const MAIN_MODULE = "infra/terraform";
const RESOURCE_GROUP = "resource_group";

/** A node of the graph: a resource, a value that refers to resources, or a call of a file or module. */
interface Node {
  /** Name in snake_case. */
  name: string;
  file: string;
  line: number;
  /** Keys of the nodes that this node waits for. */
  needs: readonly string[];
}
type Graph = ReadonlyMap<string, Node>;

/** Checks the orders in both languages. */
export function checkOrderings(bicep: ReadonlyMap<string, BicepFile>, modules: readonly TerraformModule[]): Finding[] {
  const graphs = [bicepGraph(bicep), terraformGraph(modules)];
  return [
    ...graphs.flatMap((graph) => ORDERINGS.flatMap((ordering) => checkOrdering(graph, ordering))),
    ...graphs.flatMap(checkResourceGroup),
    ...checkSubnets(bicep, graphs[0]!),
  ];
}

function checkOrdering(graph: Graph, { after, before, reason }: Ordering): Finding[] {
  const named = (names: readonly string[]) => [...graph].filter(([, { name }]) => names.includes(name));
  return named(after).flatMap(([key, node]) => {
    const reached = reachableFrom(graph, key);
    return named(before)
      .filter(([other]) => !reached.has(other))
      .map(([, { name }]) => ({
        file: node.file,
        line: node.line,
        message: `${node.name} must depend on ${name}, since ${reason}`,
      }));
  });
}

/**
 * Checks that every resource of the service waits for its resource group. Reports the outermost call without the dependency
 * instead of the resources in it.
 */
function checkResourceGroup(graph: Graph): Finding[] {
  const [groupKey] = [...graph].find(([, { name }]) => name === RESOURCE_GROUP) ?? [];
  if (groupKey === undefined) return [];
  const isInGroup = (key: string) =>
    (key.startsWith("infra/azure/modules/") && !key.includes(" var ")) ||
    (key.startsWith(`${MAIN_MODULE} azurerm_`) && key !== groupKey);
  const outermost = new Set(
    [...graph.keys()]
      .filter((key) => isInGroup(key) && !reachableFrom(graph, key).has(groupKey))
      .map((key) => outermostCall(graph, key) ?? key),
  );
  return [...outermost].map((key) => {
    const { name, file, line } = graph.get(key)!;
    return { file, line, message: `${name} must depend on the resource group` };
  });
}

/** Returns the key of the outermost call of a module around a resource. Undefined if the resource is in no called module. */
function outermostCall(graph: Graph, key: string): string | undefined {
  const callsAround = (inner: string) =>
    [...reachableFrom(graph, inner)].filter((one) => one.endsWith(" call") && graph.has(one));
  return callsAround(key).find((call) => callsAround(call).length === 0);
}

/** Checks that Bicep creates the subnets of a network one after the other. Terraform's provider does so by itself. */
function checkSubnets(bicep: ReadonlyMap<string, BicepFile>, graph: Graph): Finding[] {
  return [...bicep.values()].flatMap((file) => {
    const subnets = file.resources.filter(
      ({ type, existing }) => type === "Microsoft.Network/virtualNetworks/subnets" && !existing,
    );
    const keys = subnets.map(({ name }) => `${file.path} ${snake(name)}`);
    return subnets.flatMap(({ name, line }, index) => {
      const isOrdered = keys.every(
        (other, place) =>
          place === index ||
          reachableFrom(graph, keys[index]!).has(other) ||
          reachableFrom(graph, other).has(keys[index]!),
      );
      return isOrdered
        ? []
        : [{ file: file.path, line, message: `${name} must depend on the other subnet: Azure changes one at a time` }];
    });
  });
}

function reachableFrom(graph: Graph, start: string): ReadonlySet<string> {
  const reached = new Set<string>();
  const pending = [start];
  while (pending.length > 0) {
    for (const key of graph.get(pending.pop()!)?.needs ?? []) {
      if (reached.has(key)) continue;
      reached.add(key);
      pending.push(key);
    }
  }
  return reached;
}

/** Returns the root names in an expression: for `a.b.c`, `a`. Loop variables are included, but name no resource. */
function namesIn(expression: Expression): string[] {
  return expression.kind === "name" ? [expression.name] : children(expression).flatMap(namesIn);
}

/**
 * Returns the graph of the Bicep files. It has four kinds of nodes:
 * - `<file> <name>`: a resource.
 * - `<file> var <name>`: a variable.
 * - `<file>`: the whole file. Waits for everything in it. References to an output of the file lead to this node.
 * - `<file> call`: the start of the file. Waits for everything that the calls of the file refer to, and each resource of the file
 *   waits for it.
 */
function bicepGraph(files: ReadonlyMap<string, BicepFile>): Graph {
  const graph = new Map<string, Node>();
  for (const file of files.values()) {
    const { path: filePath, variables, resources, modules } = file;
    const keyOf = (name: string): string[] => {
      if (variables.some((one) => one.name === name)) return [`${filePath} var ${name}`];
      if (resources.some((one) => one.name === name)) return [`${filePath} ${snake(name)}`];
      const module = modules.find((one) => one.name === name);
      return module ? [path.posix.join(path.posix.dirname(filePath), module.path)] : [];
    };
    const needsOf = (parts: readonly (Expression | undefined)[]) =>
      parts.flatMap((part) => (part ? namesIn(part).flatMap(keyOf) : []));
    for (const { name, value, line } of variables)
      graph.set(`${filePath} var ${name}`, { name: `var ${name}`, file: filePath, line, needs: needsOf([value]) });
    for (const { name, body, condition, loop, line } of resources)
      graph.set(`${filePath} ${snake(name)}`, {
        name: snake(name),
        file: filePath,
        line,
        needs: [`${filePath} call`, ...needsOf([body, condition, loop?.over])],
      });
    const calledFiles = modules.map((module) => path.posix.join(path.posix.dirname(filePath), module.path));
    graph.set(filePath, {
      name: filePath,
      file: filePath,
      line: 1,
      needs: [...resources.map(({ name }) => `${filePath} ${snake(name)}`), ...calledFiles],
    });
    // Several files can call the same file, so its node collects the references of all calls.
    for (const { body, condition, loop, path: target, line } of modules) {
      const called = path.posix.join(path.posix.dirname(filePath), target);
      const existingNeeds = graph.get(`${called} call`)?.needs ?? [];
      graph.set(`${called} call`, {
        name: `call of ${called}`,
        file: filePath,
        line,
        needs: [...existingNeeds, `${filePath} call`, ...needsOf([body, condition, loop?.over])],
      });
    }
  }
  return graph;
}

/**
 * Returns the graph of the Terraform modules, without the examples. Its nodes are like those of Bicep, with the key
 * `<folder> <type>.<name>` for a resource. Unlike in Bicep, a reference waits only for the output or variable that it names.
 */
function terraformGraph(modules: readonly TerraformModule[]): Graph {
  const graph = new Map<string, Node>();
  for (const module of modules.filter(({ folder }) => !folder.includes("/examples/"))) {
    const { folder } = module;
    const calls = blocks(module, "module").map(({ block }) => block);
    const targetOf = (call: Block) => path.posix.join(folder, text(call.attributes.get("source")?.value) ?? "");
    const keysOf = (expression: Expression): string[] => {
      const [root, name, member] = dotted(expression) ?? [];
      if (root === undefined || name === undefined) return children(expression).flatMap(keysOf);
      const indexes = indexesOf(expression).flatMap(keysOf);
      if (root === "local" || root === "var") return [...indexes, `${folder} ${root}.${name}`];
      if (root === "module") {
        const call = calls.find(({ labels }) => labels[0] === name);
        if (!call) return indexes;
        // `module.name` without an output, such as in `depends_on`, refers to everything in the module.
        return [...indexes, member === undefined ? targetOf(call) : `${targetOf(call)} output.${member}`];
      }
      return root.startsWith("azurerm_") ? [...indexes, `${folder} ${root}.${name}`] : indexes;
    };
    const keysIn = (block: Block): string[] => [
      ...[...block.attributes.values()].flatMap(({ value }) => keysOf(value)),
      ...block.blocks.flatMap(keysIn),
    ];
    const created: string[] = [];
    for (const { block, file } of blocks(module, "resource")) {
      const key = `${folder} ${block.labels.join(".")}`;
      created.push(key);
      graph.set(key, { name: block.labels[1]!, file, line: block.line, needs: [`${folder} call`, ...keysIn(block)] });
    }
    graph.set(folder, { name: folder, file: folder, line: 1, needs: [...created, ...calls.map(targetOf)] });
    for (const { block, file } of blocks(module, "output"))
      graph.set(`${folder} output.${block.labels[0]}`, {
        name: block.labels[0]!,
        file,
        line: block.line,
        needs: keysIn(block),
      });
    for (const { block, file } of blocks(module, "locals"))
      for (const [name, { value, line }] of block.attributes)
        graph.set(`${folder} local.${name}`, { name: `local.${name}`, file, line, needs: keysOf(value) });
    for (const call of calls) {
      const target = targetOf(call);
      const waits = ["depends_on", "count", "for_each"].flatMap((name) => {
        const value = call.attributes.get(name)?.value;
        return value ? keysOf(value) : [];
      });
      const add = (key: string, needs: string[]) => {
        const existingNeeds = graph.get(key)?.needs ?? [];
        graph.set(key, { name: key, file: folder, line: call.line, needs: [...existingNeeds, ...needs] });
      };
      add(`${target} call`, [`${folder} call`, ...waits]);
      for (const [name, { value }] of call.attributes) add(`${target} var.${name}`, keysOf(value));
    }
  }
  return graph;
}

/** Returns the expressions in the brackets of `a[…].b`. */
function indexesOf(expression: Expression): Expression[] {
  if (expression.kind === "index") return [expression.index, ...indexesOf(expression.of)];
  return expression.kind === "member" ? indexesOf(expression.of) : [];
}
