import { children, type Expression, text } from "../expression.ts";
import type { FileScope } from "./file-scope.ts";
import { DEPLOYMENT_MEMBERS, FUNCTIONS } from "./functions.ts";

/**
 * Checks that the names, functions and members in a Bicep expression exist. Adds findings to the scope.
 * @param local Names of loop variables around the expression.
 */
export function checkNames(scope: FileScope, expression: Expression, local: ReadonlySet<string> = new Set()): void {
  if (expression.kind === "name" && !local.has(expression.name)) {
    scope.used.add(expression.name);
    if (!scope.declared(expression.name)) scope.add(expression.line, `${expression.name} is not declared`);
  }
  if (expression.kind === "call") checkCall(scope, expression);
  if (expression.kind === "member") checkMember(scope, expression);
  const inner = expression.kind === "for" ? new Set([...local, ...expression.variables]) : local;
  for (const child of children(expression)) checkNames(scope, child, inner);
}

function checkCall(scope: FileScope, { name, args, line }: Extract<Expression, { kind: "call" }>): void {
  const signature = FUNCTIONS[name];
  if (!signature) {
    scope.add(line, `the function ${name} is not known to this check: add it to bicep/functions.ts`);
    return;
  }
  if (args.length < signature.minArguments || args.length > signature.maxArguments)
    scope.add(line, `${name} is called with ${args.length} arguments`);
  if (name === "managementGroup" && scope.file.scope !== "managementGroup") {
    scope.add(line, "managementGroup() needs the target scope managementGroup");
  }
  if (name !== "loadTextContent" && name !== "loadJsonContent") return;
  const file = scope.pathOf(text(args[0]) ?? "");
  if (!scope.input.exists(file)) scope.add(line, `there is no file ${text(args[0])}`);
}

/** Checks a member of `module.outputs`, `resource.properties`, `subscription()` and similar objects. */
function checkMember(scope: FileScope, { of, name, line }: Extract<Expression, { kind: "member" }>): void {
  if (of.kind === "call" && DEPLOYMENT_MEMBERS[of.name] && !DEPLOYMENT_MEMBERS[of.name]![name]) {
    scope.add(line, `the member ${name} of ${of.name}() is not known to this check: add it to bicep/functions.ts`);
  }
  // `module[0].outputs` and `module.outputs` have the same members.
  const subject = of.kind === "index" ? of.of : of;
  if (subject.kind === "member" && subject.name === "outputs" && subject.of.kind === "name") {
    const file = scope.moduleFile(subject.of.name);
    if (file && !file.outputs.some((output) => output.name === name))
      scope.add(line, `${file.path} has no output ${name}`);
  }
  if (subject.kind === "name" && scope.file.modules.some((one) => one.name === subject.name) && name !== "outputs") {
    scope.add(line, `only the outputs of a module can be read, not ${name}`);
  }
  const type = scope.resourceObject(subject);
  if (type && !type.object.additionalPropertiesType && !type.object.properties.some((one) => one.name === name)) {
    scope.add(line, `${type.object.name} has no ${name}`);
  }
}
