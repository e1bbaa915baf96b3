// Checks Bicep files against the types of Azure resources.

import { type Expression, type Finding, property, text } from "../expression.ts";
import { checkNames } from "./check-names.ts";
import { checkObject } from "./check-values.ts";
import { allowedValues, type BicepInput, bodyType, FileScope, kindOf } from "./file-scope.ts";
import { DECORATORS } from "./functions.ts";
import type { BicepFile, Loop, Module, Parameter, Resource } from "./parse.ts";

/** Scopes of the resource types that are created outside of a resource group. */
const CREATION_SCOPES: Record<string, string[]> = {
  "Microsoft.Resources/resourceGroups": ["subscription"],
  "Microsoft.Authorization/policyDefinitions": ["subscription", "managementGroup"],
};

/** Checks the names, types, properties, parameters and outputs of every Bicep file. */
export function checkBicep(input: BicepInput): Finding[] {
  return [...input.files.values()].flatMap((file) => [
    ...file.findings,
    ...new FileCheck(new FileScope(input, file)).findings(),
  ]);
}

class FileCheck {
  readonly #scope: FileScope;

  constructor(scope: FileScope) {
    this.#scope = scope;
  }

  findings(): Finding[] {
    const { parameters, variables, resources, modules, outputs } = this.#scope.file;
    const seen = new Set<string>();
    for (const { name, line } of [...parameters, ...variables, ...resources, ...modules]) {
      if (seen.has(name)) this.#scope.add(line, `${name} is declared twice`);
      seen.add(name);
    }
    for (const parameter of parameters) this.#parameter(parameter);
    for (const { value } of variables) checkNames(this.#scope, value);
    for (const resource of resources) this.#resource(resource);
    for (const module of modules) this.#module(module);
    for (const output of outputs) {
      checkNames(this.#scope, output.value);
      this.#scope.matches(output.value, output.type, output.line, `output ${output.name}`);
    }
    for (const { name, line } of [...parameters, ...variables]) {
      if (!this.#scope.used.has(name)) this.#scope.add(line, `${name} is never used`);
    }
    return this.#scope.findings;
  }

  #parameter({ name, type, decorators, defaultValue, line }: Parameter): void {
    if (!/^(string|int|bool|object|array)(\[\])?$/.test(type))
      this.#scope.add(line, `${name} has the unknown type ${type}`);
    for (const decorator of decorators) {
      if (decorator.kind !== "call" || !DECORATORS[decorator.name]?.includes(kindOf(type))) {
        this.#scope.add(decorator.line, `${name}: no such decorator for a parameter of type ${type}`);
        continue;
      }
      if (decorator.name !== "allowed" || decorator.args[0]?.kind !== "array") continue;
      for (const value of decorator.args[0].items)
        this.#scope.matches(value, type, value.line, `allowed value of ${name}`);
      if (defaultValue?.kind === "literal" && !allowedValues(decorator)?.includes(defaultValue.value)) {
        this.#scope.add(line, `the default of ${name} is not among its allowed values`);
      }
    }
    if (defaultValue) {
      checkNames(this.#scope, defaultValue);
      this.#scope.matches(defaultValue, type, line, `default of ${name}`);
    }
  }

  #resource(resource: Resource): void {
    const { type, version, line, body, existing, condition, loop } = resource;
    const known = this.#scope.input.types.get(type.toLowerCase());
    if (condition) this.#condition(condition);
    const local = this.#loop(loop);
    checkNames(this.#scope, body, local);
    if (!known) {
      this.#scope.add(line, `no types were found for ${type}`);
      return;
    }
    const [knownType, knownVersion] = known.name.split("@");
    if (knownType?.toLowerCase() !== type.toLowerCase() || knownVersion !== version) {
      this.#scope.add(line, `${type}@${version} is not the version of the loaded types, ${known.name}`);
    }
    if (body.kind !== "object") return;
    if (existing) {
      this.#existing(resource, body);
      return;
    }
    const scopes = CREATION_SCOPES[type];
    if (scopes && !scopes.includes(this.#scope.file.scope)) {
      this.#scope.add(line, `${type} must be created in a ${scopes.join(" or ")}: set that target scope`);
    }
    const child = type.split("/").length > 2;
    if (child && !property(body, "parent")) this.#scope.add(line, `${type} needs a parent`);
    const object = bodyType(known, body);
    if (!object) {
      this.#scope.add(line, `${type} has no variant of the name ${text(property(body, "name"))}`);
      return;
    }
    checkObject(this.#scope, body, object, known, local, true);
  }

  /**
   * Checks an existing resource: it must have a name, which matches the file that creates the resource, and can set only name,
   * parent and scope.
   */
  #existing({ name, type, line }: Resource, body: Extract<Expression, { kind: "object" }>): void {
    const all = [...this.#scope.input.files.values()].flatMap(({ resources }) => resources);
    const made = all.find((one) => !one.existing && one.type === type && one.name === name);
    const [read, written] = [text(property(body, "name")), text(property(made?.body, "name"))];
    if (read !== undefined && written !== undefined && read !== written)
      this.#scope.add(line, `${name} is created as ${written}, but read as ${read}`);
    if (!property(body, "name")) this.#scope.add(line, "an existing resource needs a name");
    for (const entry of body.entries) {
      if (!["name", "parent", "scope"].includes(entry.key ?? "")) {
        this.#scope.add(entry.line, `an existing resource can't set ${entry.key}`);
      }
    }
  }

  #module({ path: target, body, line, condition, loop, name }: Module): void {
    if (condition) this.#condition(condition);
    const local = this.#loop(loop);
    checkNames(this.#scope, body, local);
    const file = this.#scope.input.files.get(this.#scope.pathOf(target));
    if (!file) {
      this.#scope.add(line, `there is no file ${target}`);
      return;
    }
    if (body.kind !== "object") return;
    for (const entry of body.entries) {
      if (!["params", "scope", "dependsOn", "name"].includes(entry.key ?? "")) {
        this.#scope.add(entry.line, `a module has no ${entry.key}`);
      }
    }
    this.#runsAt(property(body, "scope"), file, line, name);
    const given = property(body, "params");
    const entries = given?.kind === "object" ? given.entries : [];
    for (const { key, value, line: at } of entries) {
      const parameter = file.parameters.find((one) => one.name === key);
      if (!parameter) this.#scope.add(at, `${target} has no parameter ${key}`);
      else this.#scope.matches(value, parameter.type, at, `parameter ${key}`, local);
    }
    for (const parameter of file.parameters) {
      if (!parameter.defaultValue && !entries.some(({ key }) => key === parameter.name)) {
        this.#scope.add(line, `${name} does not set the parameter ${parameter.name}`);
      }
    }
  }

  /** Checks that a module runs at the scope that its file targets. */
  #runsAt(scope: Expression | undefined, file: BicepFile, line: number, name: string): void {
    const resource = scope?.kind === "name" && this.#scope.file.resources.find((one) => one.name === scope.name);
    const at =
      scope === undefined
        ? this.#scope.file.scope
        : scope.kind === "call"
          ? scope.name
          : resource && resource.type === "Microsoft.Resources/resourceGroups"
            ? "resourceGroup"
            : "";
    if (at !== file.scope)
      this.#scope.add(line, `${name} runs at ${at || "an unknown scope"}, but its file is for ${file.scope}`);
  }

  #condition(condition: Expression): void {
    checkNames(this.#scope, condition);
    this.#scope.matches(condition, "bool", condition.line, "condition");
  }

  #loop(loop: Loop | undefined): Set<string> {
    if (loop) checkNames(this.#scope, loop.over);
    return new Set(loop?.variables);
  }
}
