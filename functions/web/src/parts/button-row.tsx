import { makeStyles, tokens } from "@fluentui/react-components";
import type { ReactNode } from "react";

const useStyles = makeStyles({
  row: { display: "flex", flexWrap: "wrap", alignItems: "center", gap: tokens.spacingHorizontalS },
});

/** Buttons and links beside each other, such as the actions of a table's row. They wrap on a narrow screen. */
export const ButtonRow = ({ children }: { children: ReactNode }) => <div className={useStyles().row}>{children}</div>;
