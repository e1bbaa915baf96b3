// Checks Bicep files as the Bicep compiler would: names, resource types, properties, parameters, modules and outputs.

import { type Expression, type Finding, property, text } from "../expression.ts";
import { checkNames } from "./check-names.ts";
import { checkObject } from "./check-values.ts";
import { allowedValues, type BicepInput, bodyType, FileScope, kindOf } from "./file-scope.ts";
import { DECORATORS } from "./functions.ts";
import type { BicepFile, Loop, Module, Parameter, Resource } from "./parse.ts";

/** Target scopes in which these resource types can be created. The check does not restrict other types. */
const CREATION_SCOPES: Record<string, string[]> = {
  "Microsoft.Resources/resourceGroups": ["subscription"],
  "Microsoft.Authorization/policyDefinitions": ["subscription", "managementGroup"],
};

/** Returns the findings of all Bicep files, including syntax errors. */
export function checkBicep(input: BicepInput): Finding[] {
  return [...input.files.values()].flatMap((file) => [
    ...file.findings,
    ...new FileCheck(new FileScope(input, file)).findings(),
  ]);
}

/** Checks one file. Each method adds findings to the scope of the file. */
class FileCheck {
  readonly #scope: FileScope;

  constructor(scope: FileScope) {
    this.#scope = scope;
  }

  findings(): Finding[] {
    const { parameters, variables, resources, modules, outputs } = this.#scope.file;
    const declaredNames = new Set<string>();
    for (const { name, line } of [...parameters, ...variables, ...resources, ...modules]) {
      if (declaredNames.has(name)) this.#scope.add(line, `${name} is declared twice`);
      declaredNames.add(name);
    }
    for (const parameter of parameters) this.#checkParameter(parameter);
    for (const { value } of variables) checkNames(this.#scope, value);
    for (const resource of resources) this.#checkResource(resource);
    for (const module of modules) this.#checkModule(module);
    for (const output of outputs) {
      checkNames(this.#scope, output.value);
      this.#scope.requireType(output.value, output.type, output.line, `output ${output.name}`);
    }
    for (const { name, line } of [...parameters, ...variables]) {
      if (!this.#scope.used.has(name)) this.#scope.add(line, `${name} is never used`);
    }
    return this.#scope.findings;
  }

  #checkParameter({ name, type, decorators, defaultValue, line }: Parameter): void {
    if (!/^(string|int|bool|object|array)(\[\])?$/.test(type))
      this.#scope.add(line, `${name} has the unknown type ${type}`);
    for (const decorator of decorators) {
      if (decorator.kind !== "call" || !DECORATORS[decorator.name]?.includes(kindOf(type))) {
        this.#scope.add(decorator.line, `${name}: no such decorator for a parameter of type ${type}`);
        continue;
      }
      if (decorator.name !== "allowed" || decorator.args[0]?.kind !== "array") continue;
      for (const value of decorator.args[0].items)
        this.#scope.requireType(value, type, value.line, `allowed value of ${name}`);
      if (defaultValue?.kind === "literal" && !allowedValues(decorator)?.includes(defaultValue.value)) {
        this.#scope.add(line, `the default of ${name} is not among its allowed values`);
      }
    }
    if (defaultValue) {
      checkNames(this.#scope, defaultValue);
      this.#scope.requireType(defaultValue, type, line, `default of ${name}`);
    }
  }

  #checkResource(resource: Resource): void {
    const { type, version, line, body, existing, condition, loop } = resource;
    const resourceType = this.#scope.input.types.get(type.toLowerCase());
    if (condition) this.#checkCondition(condition, loop?.variables);
    const local = this.#checkLoop(loop);
    checkNames(this.#scope, body, local);
    if (!resourceType) {
      this.#scope.add(line, `no types were found for ${type}`);
      return;
    }
    const [knownType, knownVersion] = resourceType.name.split("@");
    if (knownType?.toLowerCase() !== type.toLowerCase() || knownVersion !== version) {
      this.#scope.add(line, `${type}@${version} is not the version of the loaded types, ${resourceType.name}`);
    }
    if (body.kind !== "object") return;
    if (existing) {
      this.#checkExisting(resource, body);
      return;
    }
    const scopes = CREATION_SCOPES[type];
    if (scopes && !scopes.includes(this.#scope.file.scope)) {
      this.#scope.add(line, `${type} must be created in a ${scopes.join(" or ")}: set that target scope`);
    }
    // `Microsoft.Storage/storageAccounts/blobServices` is a child of `Microsoft.Storage/storageAccounts`.
    const isChild = type.split("/").length > 2;
    if (isChild && !property(body, "parent")) this.#scope.add(line, `${type} needs a parent`);
    const object = bodyType(resourceType, body);
    if (!object) {
      this.#scope.add(line, `${type} has no variant of the name ${text(property(body, "name"))}`);
      return;
    }
    checkObject(this.#scope, body, object, resourceType, local, true);
  }

  /**
   * Checks a resource with the keyword `existing`. It must have a name and can set only name, parent and scope. If another file
   * creates a resource with the same symbolic name, both names must be equal.
   */
  #checkExisting({ name, type, line }: Resource, body: Extract<Expression, { kind: "object" }>): void {
    const allResources = [...this.#scope.input.files.values()].flatMap(({ resources }) => resources);
    const creating = allResources.find((one) => !one.existing && one.type === type && one.name === name);
    const [readName, createdName] = [text(property(body, "name")), text(property(creating?.body, "name"))];
    if (readName !== undefined && createdName !== undefined && readName !== createdName)
      this.#scope.add(line, `${name} is created as ${createdName}, but read as ${readName}`);
    if (!property(body, "name")) this.#scope.add(line, "an existing resource needs a name");
    for (const entry of body.entries) {
      if (!["name", "parent", "scope"].includes(entry.key ?? "")) {
        this.#scope.add(entry.line, `an existing resource can't set ${entry.key}`);
      }
    }
  }

  #checkModule({ path: target, body, line, condition, loop, name }: Module): void {
    if (condition) this.#checkCondition(condition, loop?.variables);
    const local = this.#checkLoop(loop);
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
    this.#checkModuleScope(property(body, "scope"), file, line, name);
    const givenParameters = property(body, "params");
    const entries = givenParameters?.kind === "object" ? givenParameters.entries : [];
    for (const { key, value, line: entryLine } of entries) {
      const parameter = file.parameters.find((one) => one.name === key);
      if (!parameter) this.#scope.add(entryLine, `${target} has no parameter ${key}`);
      else this.#scope.requireType(value, parameter.type, entryLine, `parameter ${key}`, local);
    }
    for (const parameter of file.parameters) {
      if (!parameter.defaultValue && !entries.some(({ key }) => key === parameter.name)) {
        this.#scope.add(line, `${name} does not set the parameter ${parameter.name}`);
      }
    }
  }

  /**
   * Checks that the scope of a module call is the target scope of its file. Without `scope`, it is the scope of the calling
   * file.
   */
  #checkModuleScope(scope: Expression | undefined, file: BicepFile, line: number, name: string): void {
    const resource = scope?.kind === "name" && this.#scope.file.resources.find((one) => one.name === scope.name);
    const callScope =
      scope === undefined
        ? this.#scope.file.scope
        : scope.kind === "call"
          ? scope.name
          : resource && resource.type === "Microsoft.Resources/resourceGroups"
            ? "resourceGroup"
            : "";
    if (callScope !== file.scope)
      this.#scope.add(line, `${name} runs at ${callScope || "an unknown scope"}, but its file is for ${file.scope}`);
  }

  #checkCondition(condition: Expression, loopVariables: readonly string[] = []): void {
    checkNames(this.#scope, condition, new Set(loopVariables));
    this.#scope.requireType(condition, "bool", condition.line, "condition");
  }

  /** Checks the list of a `for` loop. Returns the names of its variables. */
  #checkLoop(loop: Loop | undefined): Set<string> {
    if (loop) checkNames(this.#scope, loop.over);
    return new Set(loop?.variables);
  }
}
