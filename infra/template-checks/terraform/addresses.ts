// Checks the addresses of the Terraform modules. Terraform's state stores each resource under its address. Without a `moved`
// block, a new name or key makes Terraform delete the existing resource with its data, and create another one.
// https://developer.hashicorp.com/terraform/language/modules/develop/refactoring

import path from "node:path";
import type { BicepFile } from "../bicep/parse.ts";
import { dotted, type Expression, type Finding, text } from "../expression.ts";
import { snake } from "../parity/normalize.ts";
import recorded from "./addresses.json" with { type: "json" };
import { blocks, type TerraformModule } from "./check.ts";
import type { Block } from "./parse.ts";

/**
 * Addresses of the released modules, by folder, with the source of the keys of their instances. The source is the expression of
 * `for_each` or `count`, or an empty text for one instance without a key.
 */
const RECORDED: Record<string, Record<string, string>> = recorded;
const RECORD = "infra/template-checks/terraform/addresses.json";

interface Declared {
  keys: string;
  file: string;
  line: number;
}

/** A resource or module call with another name. */
interface Renamed {
  from: string;
  to: string;
}

/** Checks that each recorded address is still declared with the same keys, or moved, and that each declared one is recorded. */
export function checkAddresses(modules: readonly TerraformModule[]): Finding[] {
  return released(modules).flatMap((module) => {
    const recordedKeys = RECORDED[module.folder] ?? {};
    const declared = declaredIn(module);
    const moves = movesIn(module);
    const renamed = renamedIn(module);
    const place = { file: `${module.folder}/main.tf`, line: 1 };
    const missing = Object.keys(recordedKeys).filter((address) => !declared.has(address));
    return [
      ...moves.flatMap(({ from, to, file, line }) => checkMove({ from, to, file, line }, module, modules, declared)),
      ...missing.flatMap((address) => {
        if (moves.some(({ from }) => from === address)) return [];
        const other = renamed.find(({ from }) => from === address)?.to;
        if (other === undefined) {
          const message = `Terraform would delete ${address}, which ${RECORD} lists: add a moved block, or remove the entry if that is intended`;
          return [{ ...place, message }];
        }
        const { file, line } = declared.get(other)!;
        const message = `${address} is now ${other}: Terraform would delete the existing one and create another. Add moved { from = ${address}, to = ${other} }`;
        return [{ file, line, message }];
      }),
      ...[...declared].flatMap(([address, { keys, file, line }]) => {
        const source = renamed.find(({ to }) => to === address)?.from;
        const expected = recordedKeys[source ?? address];
        // A move from the same address only renames keys. A move from an address that no record has is one of an older version.
        const isMoved = moves.some(({ to, from }) => to === address && (from === address || !(from in recordedKeys)));
        if (isMoved || expected === keys) return [];
        const message =
          expected === undefined
            ? `${address} is not in ${RECORD}: add it with the keys "${keys}"`
            : `${address} has the keys "${keys}", before "${expected}". Terraform would delete each instance whose key changes: add moved blocks, or change ${RECORD} if the keys stay the same`;
        return [{ file, line, message }];
      }),
    ];
  });
}

/** Checks that a `moved` block leads from an address that is no longer declared to one that is. */
function checkMove(
  { from, to, file, line }: { from: string; to: string; file: string; line: number },
  module: TerraformModule,
  modules: readonly TerraformModule[],
  declared: ReadonlyMap<string, Declared>,
): Finding[] {
  const [root, name, ...inner] = to.split(".");
  const call = blocks(module, "module").find(({ block }) => root === "module" && block.labels[0] === name)?.block;
  const folder = path.posix.join(module.folder, text(call?.attributes.get("source")?.value) ?? "");
  const target = inner.length > 0 ? modules.find((one) => one.folder === folder) : undefined;
  // A chain of moves ends at a declared address.
  const isNextMoved = movesIn(module).some((one) => one.from === to && one.to !== to);
  const exists = target ? declaredIn(target).has(inner.join(".")) : declared.has(to) || isNextMoved;
  return [
    ...(exists ? [] : [{ file, line, message: `the moved block leads to ${to}, which is not declared` }]),
    ...(from !== to && declared.has(from)
      ? [{ file, line, message: `the moved block leads from ${from}, which is still declared` }]
      : []),
  ];
}

/**
 * Returns the modules with renamed resources and module calls under their recorded names. The other checks find resources by
 * name, so they would otherwise report each correct rename. A new name that Bicep also has is not changed back.
 */
export function withRecordedNames(
  modules: readonly TerraformModule[],
  bicep: ReadonlyMap<string, BicepFile>,
): TerraformModule[] {
  const inBicep = new Set(
    [...bicep.values()].flatMap(({ resources, modules: calls }) =>
      [...resources, ...calls].map(({ name }) => snake(name)),
    ),
  );
  return modules.map((module) => {
    const names = new Map(
      renamedIn(module)
        .filter(({ to }) => !inBicep.has(to.split(".")[1]!))
        .map(({ from, to }) => [to, from.split(".")[1]!]),
    );
    if (names.size === 0) return module;
    return {
      ...module,
      files: module.files.map((file) => ({ ...file, blocks: file.blocks.map((one) => rename(one, names)) })),
    };
  });
}

/**
 * Returns the renamed declarations: those with a `moved` block, and those that are certainly renamed because exactly one
 * declaration of their type disappeared and exactly one is new.
 */
function renamedIn(module: TerraformModule): Renamed[] {
  const recordedKeys = RECORDED[module.folder];
  if (!recordedKeys) return [];
  const declared = declaredIn(module);
  const moves = movesIn(module);
  /** Follows a chain of moves. */
  const endOf = (address: string, steps = moves.length): string => {
    const next = moves.find(({ from, to }) => from === address && to !== address)?.to;
    return next === undefined || steps === 0 ? address : endOf(next, steps - 1);
  };
  const typeOf = (address: string) => address.split(".")[0]!;
  const missing = Object.keys(recordedKeys).filter((address) => !declared.has(address));
  const moved = missing
    .map((from) => ({ from, to: endOf(from) }))
    .filter(({ from, to }) => from !== to && typeOf(from) === typeOf(to) && declared.has(to));
  const lost = missing.filter((address) => !moves.some(({ from }) => from === address));
  const added = [...declared.keys()].filter(
    (address) => !(address in recordedKeys) && !moves.some(({ to }) => to === address),
  );
  const unmoved = lost.flatMap((from) => {
    const sameType = (address: string) => typeOf(address) === typeOf(from);
    const [to, ...others] = added.filter(sameType);
    return to !== undefined && others.length === 0 && lost.filter(sameType).length === 1 ? [{ from, to }] : [];
  });
  return [...moved, ...unmoved];
}

/** Users copy the examples, so the addresses there are their own. */
const released = (modules: readonly TerraformModule[]): TerraformModule[] =>
  modules.filter(({ folder }) => !folder.includes("/examples/"));

/** Returns the resources and module calls of a module by address. */
export function declaredIn(module: TerraformModule): Map<string, Declared> {
  return new Map(
    [...blocks(module, "resource"), ...blocks(module, "module")].map(({ block, file }) => [
      block.type === "module" ? `module.${block.labels[0]}` : block.labels.join("."),
      { keys: keysOf(block, module), file, line: block.line },
    ]),
  );
}

/** Returns the source of the keys of a declaration's instances (see RECORDED). Local values are replaced by their expressions. */
function keysOf({ attributes }: Block, module: TerraformModule): string {
  if (attributes.has("count")) return "count";
  let source = attributes.get("for_each")?.source ?? "";
  const locals = blocks(module, "locals");
  for (let local = /^local\.(\w+)$/.exec(source); local; local = /^local\.(\w+)$/.exec(source)) {
    const value = locals.find(({ block }) => block.attributes.has(local![1]!))?.block.attributes.get(local[1]!)?.source;
    if (value === undefined || value === source) break;
    source = value;
  }
  // The condition of a loop decides which instances exist, not what their keys are.
  return source.replace(/\s+/g, " ").replace(/ if [^{}]*\}$/, " }");
}

/** Returns the `moved` blocks of a module, without the keys of instances. */
function movesIn(module: TerraformModule): { from: string; to: string; file: string; line: number }[] {
  return blocks(module, "moved").map(({ block, file }) => {
    const addressOf = (name: string) => {
      const value = block.attributes.get(name)?.value;
      return (value && dotted(value)?.join(".")) ?? "";
    };
    return { from: addressOf("from"), to: addressOf("to"), file, line: block.line };
  });
}

function rename(block: Block, names: ReadonlyMap<string, string>): Block {
  const address = block.type === "module" ? `module.${block.labels[0]}` : block.labels.join(".");
  const newAddress = ["resource", "module"].includes(block.type) ? names.get(address) : undefined;
  return {
    ...block,
    ...(newAddress && { labels: [...block.labels.slice(0, -1), newAddress] }),
    attributes: new Map(
      [...block.attributes].map(([name, one]) => [name, { ...one, value: renameIn(one.value, names) }]),
    ),
    blocks: block.blocks.map((inner) => rename(inner, names)),
  };
}

/** Replaces the names in an expression. The members of an expression are expressions, or lists and entries with expressions. */
function renameIn<T>(value: T, names: ReadonlyMap<string, string>): T {
  if (Array.isArray(value)) return value.map((item) => renameIn(item, names)) as T;
  if (typeof value !== "object" || value === null) return value;
  const copy = Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, renameIn(inner, names)])) as T;
  const { kind, of, name } = value as Partial<Extract<Expression, { kind: "member" }>>;
  const other = kind === "member" && of?.kind === "name" ? names.get(`${of.name}.${name}`) : undefined;
  return other === undefined ? copy : { ...copy, name: other };
}
