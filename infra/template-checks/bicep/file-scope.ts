// Resolves the names in a Bicep file and the types of its expressions. The checks in this folder share one FileScope per file.

import path from "node:path";
import { type Expression, type Finding, property, text } from "../expression.ts";
import { DEPLOYMENT_MEMBERS, FUNCTIONS } from "./functions.ts";
import type { ObjectType, ResourceType, TypeLibrary } from "./library.ts";
import type { BicepFile } from "./parse.ts";

export interface BicepInput {
  /** Bicep files by path. */
  files: ReadonlyMap<string, BicepFile>;
  types: TypeLibrary;
  /** Returns whether a file that a template loads exists. */
  exists(file: string): boolean;
}

/** The symbols of one file. Also collects the findings of the checks. */
export class FileScope {
  readonly input: BicepInput;
  readonly file: BicepFile;
  readonly findings: Finding[] = [];
  /** Names that expressions of the file use, to find unused declarations. */
  readonly used = new Set<string>();

  constructor(input: BicepInput, file: BicepFile) {
    this.input = input;
    this.file = file;
  }

  /** Resolves a path relative to this file. */
  pathOf(target: string): string {
    return path.posix.join(path.posix.dirname(this.file.path), target);
  }

  /** Returns the file that the module with this symbolic name refers to. */
  moduleFile(name: string): BicepFile | undefined {
    const module = this.file.modules.find((one) => one.name === name);
    return module && this.input.files.get(this.pathOf(module.path));
  }

  /** Adds a finding. */
  add(line: number, message: string): void {
    this.findings.push({ file: this.file.path, line, message });
  }

  /** Returns whether the file declares this name. */
  declared(name: string): boolean {
    const { parameters, variables, resources, modules } = this.file;
    return [...parameters, ...variables, ...resources, ...modules].some((one) => one.name === name);
  }

  /**
   * Returns the object type of an expression such as `storageAccount` or `storageAccount.properties`, whose root is a resource.
   */
  resourceObject(expression: Expression): { object: ObjectType; resource: ResourceType } | undefined {
    if (expression.kind === "index") return this.resourceObject(expression.of);
    if (expression.kind === "name") {
      const declared = this.file.resources.find(({ name }) => name === expression.name);
      const resource = declared && this.input.types.get(declared.type.toLowerCase());
      const object = resource && (bodyType(resource, declared.body) ?? resource.bodies[0]);
      return object && { object, resource };
    }
    if (expression.kind !== "member") return undefined;
    const owner = this.resourceObject(expression.of);
    const type = owner?.object.properties.find(({ name }) => name === expression.name)?.type;
    const object = type === undefined ? undefined : owner?.resource.objects.get(type);
    return object && { object, resource: owner!.resource };
  }

  /** Adds a finding if the type of the value is known and differs from `type`. */
  requireType(
    value: Expression,
    type: string,
    line: number,
    what: string,
    local: ReadonlySet<string> = new Set(),
  ): void {
    const valueKind = this.kind(value, local);
    if (valueKind !== undefined && valueKind !== kindOf(type))
      this.add(line, `${what} must be ${kindOf(type)}, but is ${valueKind}`);
  }

  /** Returns the kind of an expression: string, int, bool, object or array. Undefined if it is unknown. */
  kind(value: Expression, local: ReadonlySet<string>): string | undefined {
    switch (value.kind) {
      case "literal":
        return value.value === null
          ? undefined
          : typeof value.value === "number"
            ? "int"
            : typeof value.value === "boolean"
              ? "bool"
              : "string";
      case "template":
        return "string";
      case "object":
        return "object";
      case "array":
      case "for":
        return "array";
      case "conditional":
        return this.kind(value.whenTrue, local) ?? this.kind(value.whenFalse, local);
      case "call":
        return FUNCTIONS[value.name]?.returns;
      case "name":
        return local.has(value.name) ? undefined : this.kindOfName(value.name, local);
      case "member":
        return this.kindOfMember(value);
      default:
        return undefined;
    }
  }

  kindOfName(name: string, local: ReadonlySet<string>): string | undefined {
    const parameter = this.file.parameters.find((one) => one.name === name);
    if (parameter) return kindOf(parameter.type);
    const variable = this.file.variables.find((one) => one.name === name);
    return variable && this.kind(variable.value, local);
  }

  kindOfMember({ of, name }: Extract<Expression, { kind: "member" }>): string | undefined {
    if (of.kind === "call") return DEPLOYMENT_MEMBERS[of.name]?.[name];
    if (of.kind === "member" && of.name === "outputs" && of.of.kind === "name") {
      const output = this.moduleFile(of.of.name)?.outputs.find((one) => one.name === name);
      return output && kindOf(output.type);
    }
    const owner = this.resourceObject(of);
    const type = owner?.object.properties.find((one) => one.name === name)?.type;
    if (type === undefined || type === "any") return undefined;
    if (owner!.resource.objects.has(type)) return "object";
    return type.endsWith("[]") ? "array" : ["int", "bool"].includes(type) ? type : "string";
  }
}

/** Returns the body type of a resource. If the resource type has several, the literal name of the resource selects one. */
export function bodyType(type: ResourceType, body: Expression): ObjectType | undefined {
  if (type.bodies.length === 1) return type.bodies[0];
  const name = text(property(body, "name"));
  return type.bodies.find(({ properties }) => properties.some((one) => one.name === "name" && one.type === name));
}

/** Returns the values of the decorator `@allowed`. Undefined for another decorator. */
export function allowedValues(decorator: Expression): (string | number | boolean | null)[] | undefined {
  if (decorator.kind !== "call" || decorator.name !== "allowed" || decorator.args[0]?.kind !== "array")
    return undefined;
  return decorator.args[0].items.flatMap((item) => (item.kind === "literal" ? [item.value] : []));
}

/** Returns the kind of a Bicep type: `array` for a type such as `string[]`, otherwise the type itself. */
export function kindOf(type: string): string {
  return type.endsWith("[]") ? "array" : type;
}
