"""What people see: customers and the counter without signing in, staff in the frame of the engine's pages."""
