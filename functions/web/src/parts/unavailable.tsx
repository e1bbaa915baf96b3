import { Button, makeStyles, Text } from "@fluentui/react-components";
import { useId } from "react";
import { type Operation, requirementsOf, useCurrentUser, useRoleAllows } from "../api/access.ts";

const useStyles = makeStyles({
  // In a row of actions, unavailable ones are below the others, each with its reason on a line of its own.
  unavailable: { order: 1, flexBasis: "100%" },
});

/** Returns a function that says why the user can't call an operation, and whom to ask. Undefined if the user can. */
export function useWhyNot(): (operation: Operation) => string | undefined {
  const { role, tier } = useCurrentUser();
  const roleAllows = useRoleAllows();
  return (operation) => {
    const { roles, tier: requiredTier } = requirementsOf(operation);
    if (!roleAllows(operation))
      return `Your role is ${role}. Ask a user with the role ${roles.join(" or ")}, or ask an administrator for that role.`;
    if (requiredTier === "pro" && tier === "core") return "Needs a PRO license. Ask an administrator.";
    return undefined;
  };
}

/** An action that is not available: a disabled button that keyboards reach, with the reason beside it. */
export function Unavailable({ title, reason }: { title: string; reason: string }) {
  const styles = useStyles();
  const id = useId();
  return (
    <span className={styles.unavailable}>
      <Button size="small" disabledFocusable aria-describedby={id}>
        {title}
      </Button>{" "}
      <Text size={200} id={id}>
        {reason}
      </Text>
    </span>
  );
}
