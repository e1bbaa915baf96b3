import type { Remediation } from "../../shared/compliance/remedies/remediation.ts";

/** Commands that take something away from a consumer. Without `--append`, a reset replaces all credentials. */
const TAKES =
  /^az (?:[\w-]+ )*(?:delete|purge|remove|disable|revoke|regenerate)\b|^az .*(?:--enabled false|--enable-rbac-authorization true|--public-network-access Disabled|--default-action Deny)\b|^az ad \w+ credential reset\b(?!.* --append\b)/;
/** Commands that create a replacement or grant access. */
const MAKES = /^az (?:[\w-]+ )*(?:create|add|set|rotate|import|reset)(?: |$)|^az rest .*--method (?:POST|PATCH)\b/;
const PORTAL_TAKES =
  /(?<![-\w])(?:delete|disable|remove|purge|revoke|regenerate)\b(?! protection)|Enabled: No|> Azure role-based access control|Allow public access from specific/gi;
const PORTAL_MAKES =
  /New client secret|Upload certificate|New Version|Import with|Rotate now|> Create|Generate or|enter the new|\badd\b|\bassign\b/gi;
const BICEP_TAKES = /enableRbacAuthorization: true|publicNetworkAccess: 'Disabled'|defaultAction: 'Deny'/;

const isComment = (line: string): boolean => line.startsWith("#");
/** Returns the commands on a line, including commented ones. */
const commandsOn = (line: string): string[] =>
  line
    .replace(/^# /, "")
    .split(/ && | \| /)
    .map((command) => command.trim())
    .filter((command) => command.startsWith("az "));

/** Returns the lines of a remediation that take something away. */
export const takingLines = ({ cli }: Pick<Remediation, "cli">): string[] =>
  cli.split("\n").filter((line) => commandsOn(line).some((command) => TAKES.test(command)));

/**
 * Returns mistakes in the order of a remediation: the replacement comes first, then its consumers. The command that deletes or
 * disables the old one is last, behind a condition, and commented out.
 */
export function mistakesOfOrder(remediation: Remediation): string[] {
  const { portal, cli, bicep, bicepNote } = remediation;
  const mistakes: string[] = [];
  const lines = cli.split("\n");
  const makes = lines.findLastIndex((line) =>
    commandsOn(line).some((command) => MAKES.test(command) && !TAKES.test(command)),
  );
  for (const line of takingLines(remediation)) {
    const at = lines.indexOf(line);
    if (!isComment(line)) mistakes.push(`runs when pasted: ${line}`);
    if (at < makes) mistakes.push(`stands before a command that makes the replacement: ${line}`);
    if (!/^# (?:After|If) .+:$/.test(lines[at - 1] ?? "")) mistakes.push(`says no condition: ${line}`);
  }
  // An interactive shell without comments must not take a quote in one for the start of a word.
  for (const line of lines.filter(isComment))
    if ((line.match(/'/g) ?? []).length % 2 === 1) mistakes.push(`has an open quote: ${line}`);

  const [first] = portal.matchAll(PORTAL_TAKES);
  const last = [...portal.matchAll(PORTAL_MAKES)].at(-1);
  if (first) {
    if (!/Only then|After|If nothing|If it does not/.test(portal.slice(0, first.index)))
      mistakes.push(`takes away in the portal without a condition: ${portal}`);
    if (last && last.index > first.index) mistakes.push(`takes away in the portal first: ${portal}`);
  }
  if (bicep !== null && BICEP_TAKES.test(bicep) && !/^Deploy it only /.test(bicepNote))
    mistakes.push(`says no condition beside the template: ${bicepNote}`);
  return mistakes;
}
