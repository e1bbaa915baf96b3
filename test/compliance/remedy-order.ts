import type { Remediation } from "../../shared/compliance/remedies/remediation.ts";

/*
 * Finds remediation steps in a dangerous order: a step that deletes, disables or restricts something must come after the step
 * that creates the replacement.
 */

/**
 * Matches destructive commands, such as `az keyvault secret delete …`, `… --enabled false` and `… --default-action Deny`. Without
 * `--append`, `az ad app credential reset` replaces all credentials.
 */
const DESTRUCTIVE_COMMAND =
  /^az (?:[\w-]+ )*(?:delete|purge|remove|disable|revoke|regenerate)\b|^az .*(?:--enabled false|--enable-rbac-authorization true|--public-network-access Disabled|--default-action Deny)\b|^az ad \w+ credential reset\b(?!.* --append\b)/;
/** Matches commands that create a replacement or grant access, such as `az role assignment create …`. */
const CREATING_COMMAND =
  /^az (?:[\w-]+ )*(?:create|add|set|rotate|import|reset)(?: |$)|^az rest .*--method (?:POST|PATCH)\b/;
/** Matches destructive steps in portal instructions, such as "Delete" or "Enabled: No", but not "purge protection". */
const DESTRUCTIVE_PORTAL_STEP =
  /(?<![-\w])(?:delete|disable|remove|purge|revoke|regenerate)\b(?! protection)|Enabled: No|> Azure role-based access control|Allow public access from specific/gi;
/** Matches creating steps in portal instructions, such as "New client secret". */
const CREATING_PORTAL_STEP =
  /New client secret|Upload certificate|New Version|Import with|Rotate now|> Create|Generate or|enter the new|\badd\b|\bassign\b/gi;
/** Matches properties in a template that cut off consumers. */
const DESTRUCTIVE_BICEP = /enableRbacAuthorization: true|publicNetworkAccess: 'Disabled'|defaultAction: 'Deny'/;

const isComment = (line: string): boolean => line.startsWith("#");
/** Returns the commands on a line, including commented ones. */
const commandsOn = (line: string): string[] =>
  line
    .replace(/^# /, "")
    .split(/ && | \| /)
    .map((command) => command.trim())
    .filter((command) => command.startsWith("az "));

/** Returns the lines of a remediation's CLI commands that delete, disable or restrict something. */
export const destructiveLines = ({ cli }: Pick<Remediation, "cli">): string[] =>
  cli.split("\n").filter((line) => commandsOn(line).some((command) => DESTRUCTIVE_COMMAND.test(command)));

/**
 * Returns mistakes in the order of a remediation's steps. Each destructive command must come after the last creating command, be
 * commented out, and follow a comment that names its condition. Portal steps and templates must name their condition too.
 */
export function findOrderMistakes(remediation: Remediation): string[] {
  const { portal, cli, bicep, bicepNote } = remediation;
  const mistakes: string[] = [];
  const lines = cli.split("\n");
  const lastCreatingLine = lines.findLastIndex((line) =>
    commandsOn(line).some((command) => CREATING_COMMAND.test(command) && !DESTRUCTIVE_COMMAND.test(command)),
  );
  for (const line of destructiveLines(remediation)) {
    const index = lines.indexOf(line);
    if (!isComment(line)) mistakes.push(`runs when pasted: ${line}`);
    if (index < lastCreatingLine) mistakes.push(`comes before a command that creates the replacement: ${line}`);
    if (!/^# (?:After|If) .+:$/.test(lines[index - 1] ?? ""))
      mistakes.push(`follows no comment with its condition: ${line}`);
  }
  // zsh, by default, does not support comments in pasted lines. An odd number of quotes would make it wait for more input.
  for (const line of lines.filter(isComment))
    if ((line.match(/'/g) ?? []).length % 2 === 1) mistakes.push(`has an open quote: ${line}`);

  const [firstDestructive] = portal.matchAll(DESTRUCTIVE_PORTAL_STEP);
  const lastCreating = [...portal.matchAll(CREATING_PORTAL_STEP)].at(-1);
  if (firstDestructive) {
    if (!/Only then|After|If nothing|If it does not/.test(portal.slice(0, firstDestructive.index)))
      mistakes.push(`the portal's destructive step has no condition: ${portal}`);
    if (lastCreating && lastCreating.index > firstDestructive.index)
      mistakes.push(`the portal's destructive step comes before a creating step: ${portal}`);
  }
  if (bicep !== null && DESTRUCTIVE_BICEP.test(bicep) && !/^Deploy it only /.test(bicepNote))
    mistakes.push(`the template's note has no condition: ${bicepNote}`);
  return mistakes;
}
