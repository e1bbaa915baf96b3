/** The charts that the page uses. A file of its own keeps the others out of the bundle. */
export { LineChart, VerticalStackedBarChart } from "@fluentui/react-charts";
